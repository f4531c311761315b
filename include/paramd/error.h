/* paramd/error.h - what can go wrong, told once for every program.
 *
 * Every function that can fail returns an int: PD_OK (0) or one of the negative codes below. The codes
 * are gRPC's canonical list with the sign turned, so that they travel on the wire unchanged; PD_NO_MEMORY
 * is local to a process and travels as RESOURCE_EXHAUSTED.
 *
 * Functions that take a `pd_error *` also leave a sentence there that says what was expected, what came
 * and what to do. NULL is fine: then only the code is told. After an error the object is as it was before
 * the call, unless the function's comment says otherwise. Programming errors are asserted, not returned. */
#ifndef PARAMD_ERROR_H
#define PARAMD_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what a shared library exports; everything else stays inside it. */
#define PD_API __attribute__((visibility("default")))

/* X(name, value, short text) */
#define PD_ERRORS(X)                                                                    \
    X(OK,                    0, "ok")                                                   \
    X(CANCELLED,            -1, "cancelled")                                            \
    X(UNKNOWN,              -2, "unknown error")                                        \
    X(INVALID_ARGUMENT,     -3, "invalid argument")                                     \
    X(DEADLINE_EXCEEDED,    -4, "deadline exceeded")                                    \
    X(NOT_FOUND,            -5, "not found")                                            \
    X(ALREADY_EXISTS,       -6, "already exists")                                       \
    X(PERMISSION_DENIED,    -7, "permission denied")                                    \
    X(RESOURCE_EXHAUSTED,   -8, "a limit is reached")                                   \
    X(FAILED_PRECONDITION,  -9, "not possible in the present state")                    \
    X(ABORTED,             -10, "aborted")                                              \
    X(OUT_OF_RANGE,        -11, "out of range")                                         \
    X(UNIMPLEMENTED,       -12, "not implemented")                                      \
    X(INTERNAL,            -13, "internal error")                                       \
    X(UNAVAILABLE,         -14, "not reachable or shutting down, try again")            \
    X(DATA_LOSS,           -15, "data is damaged")                                      \
    X(UNAUTHENTICATED,     -16, "not authenticated")                                    \
    X(NO_MEMORY,           -17, "out of memory")

enum pd_code {
#define PD_CODE(name, value, text) PD_##name = value,
    PD_ERRORS(PD_CODE)
#undef PD_CODE
};

#define PD_ERROR_TEXT 512

typedef struct pd_error {
    int  code;                      /* enum pd_code */
    char text[PD_ERROR_TEXT];       /* one sentence, no newline, always terminated */
} pd_error;

/* Fills *err (unless NULL) and returns `code`, so that a caller can write
 * `return pd_fail(err, PD_NOT_FOUND, "job %s: no such job", name);`. A text too long is cut. What cannot be printed
 * (control characters, broken UTF-8) becomes '?', so that a text may quote whatever a peer sent. */
PD_API int pd_fail(pd_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "INVALID_ARGUMENT", and the short text. Never NULL; "UNKNOWN" for a code not in the list. */
PD_API const char *pd_code_name(int code);
PD_API const char *pd_code_text(int code);

#ifdef __cplusplus
}
#endif
#endif
