/* test_main.h - declares the main of a test file, which the build renames to test_X_main (-Dmain=test_X_main). Included before each test file. */
#ifndef TEST_MAIN_H
#define TEST_MAIN_H

int main(void);

#endif
