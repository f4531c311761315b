# Builds for ARM64 with Debian's cross compiler; tests/cross.sh uses it. PD_SYSROOT: a folder with the arm64 packages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PD_SYSROOT)
set(CMAKE_SYSROOT ${PD_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${PD_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)        # protoc-c and scdoc run on this machine
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${PD_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${PD_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${PD_SYSROOT}/usr/share/pkgconfig)
# What the build itself runs (it prints manual pages with the new programs) and what ctest runs.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${PD_SYSROOT})
