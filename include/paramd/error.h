/* paramd/error.h - error codes and error texts, the same for all programs and libraries.
 *
 * Every function that can fail returns an int: PD_OK (0) or one of the negative codes below. The codes are those of
 * gRPC with the opposite sign. PD_NO_MEMORY and PD_REWIND stay within a process; on the wire PD_NO_MEMORY is
 * RESOURCE_EXHAUSTED.
 *
 * Functions with a `pd_error *` argument also write one sentence: what was expected, what came, and what to do. Pass
 * NULL if you need only the code. After an error the object is as it was before the call, unless the function's comment
 * says otherwise. Programming errors are asserted, not returned. */
#ifndef PARAMD_ERROR_H
#define PARAMD_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the functions that a shared library exports. */
#define PD_API __attribute__((visibility("default")))

/* The list of error codes as X(name, value, short text): a macro X makes an enum or a table from it. */
#define PD_ERRORS(X)                                                                                                   \
    X(OK, 0, "ok")                                                                                                     \
    X(CANCELLED, -1, "cancelled")                                                                                      \
    X(UNKNOWN, -2, "unknown error")                                                                                    \
    X(INVALID_ARGUMENT, -3, "invalid argument")                                                                        \
    X(DEADLINE_EXCEEDED, -4, "deadline exceeded")                                                                      \
    X(NOT_FOUND, -5, "not found")                                                                                      \
    X(ALREADY_EXISTS, -6, "already exists")                                                                            \
    X(PERMISSION_DENIED, -7, "permission denied")                                                                      \
    X(RESOURCE_EXHAUSTED, -8, "a limit is reached")                                                                    \
    X(FAILED_PRECONDITION, -9, "not possible in the present state")                                                    \
    X(ABORTED, -10, "aborted")                                                                                         \
    X(OUT_OF_RANGE, -11, "out of range")                                                                               \
    X(UNIMPLEMENTED, -12, "not implemented")                                                                           \
    X(INTERNAL, -13, "internal error")                                                                                 \
    X(UNAVAILABLE, -14, "not reachable or shutting down, try again")                                                   \
    X(DATA_LOSS, -15, "data is damaged")                                                                               \
    X(UNAUTHENTICATED, -16, "not authenticated")                                                                       \
    X(NO_MEMORY, -17, "out of memory")                                                                                 \
    X(REWIND, -18, "the server has gone back to an earlier step")

enum pd_code {
#define PD_CODE(name, value, text) PD_##name = value,
    PD_ERRORS(PD_CODE)
#undef PD_CODE
};

#define PD_ERROR_TEXT 512

typedef struct pd_error {
    /* An enum pd_code. */
    int code;
    /* The error's text: one sentence without a newline, always terminated by a zero. */
    char text[PD_ERROR_TEXT];
} pd_error;

/* Fills *err (unless NULL) and returns `code`, so that a caller can write `return pd_fail(err, PD_NOT_FOUND, "job %s:
 * no such job", name);`. A text that is too long is cut. Control characters and broken UTF-8 become '?', so a text may
 * quote bytes that a peer has sent. */
PD_API int pd_fail(pd_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Return the name of an error code, for instance "INVALID_ARGUMENT", and its short text. A code that is not listed
 * counts as UNKNOWN. */
PD_API const char *pd_code_name(int code);
PD_API const char *pd_code_text(int code);

#ifdef __cplusplus
}
#endif
#endif
