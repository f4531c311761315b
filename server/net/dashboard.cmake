# Makes a C file of the dashboard's page: its bytes, and the hashes of its script and style, by which the content
# security policy lets a browser run them.  cmake -DPAGE=dashboard.html -DOUT=dashboard_page.c -P dashboard.cmake
file(READ "${PAGE}" page)

# Stores the SHA-256 of the text between <TAG> and </TAG> in `out`. The page has exactly one such element.
function(hash_element tag out)
    string(FIND "${page}" "<${tag}>" first)
    string(FIND "${page}" "<${tag}" last REVERSE)
    string(FIND "${page}" "</${tag}>" end)
    if(first EQUAL -1 OR NOT first EQUAL last OR end LESS first)
        message(FATAL_ERROR "${PAGE}: expected exactly one element <${tag}> without attributes")
    endif()
    string(LENGTH "<${tag}>" skip)
    math(EXPR begin "${first} + ${skip}")
    math(EXPR length "${end} - ${begin}")
    string(SUBSTRING "${page}" ${begin} ${length} text)
    string(SHA256 hash "${text}")
    set(${out} ${hash} PARENT_SCOPE)
endfunction()

hash_element(script script_hash)
hash_element(style style_hash)
file(READ "${PAGE}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n"
    bytes "${bytes}")
file(WRITE "${OUT}" "/* dashboard_page.c - the dashboard's page; made by dashboard.cmake. */
#include <stddef.h>
extern const unsigned char pd_dashboard[];
extern const size_t pd_dashboard_bytes;
extern const char pd_dashboard_script_sha256[], pd_dashboard_style_sha256[];
const unsigned char pd_dashboard[] = {
${bytes}
};
const size_t pd_dashboard_bytes = sizeof pd_dashboard;
const char pd_dashboard_script_sha256[] = \"${script_hash}\";
const char pd_dashboard_style_sha256[] = \"${style_hash}\";
")
