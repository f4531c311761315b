/* test_main.h - declares main before each test file. The build renames the main of test_X.c to test_X_main
 * (-Dmain=test_X_main). */
#ifndef TEST_MAIN_H
#define TEST_MAIN_H

int main(void);

#endif
