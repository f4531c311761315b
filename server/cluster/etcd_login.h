/* etcd_login.h - the user of an etcd that asks for names and passwords: the request for a token, and the token that all
 * other requests carry. Tokens end, and are lost when a member starts again: a request that was refused because of its
 * token asks for a new one. */
#ifndef PD_ETCD_LOGIN_H
#define PD_ETCD_LOGIN_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_ETCD_LOGIN "/v3/auth/authenticate" /* path to which the request for a token is posted */

enum {
    PD_ETCD_USER = 128,     /* most bytes of a user's name, with its terminating zero */
    PD_ETCD_PASSWORD = 256, /* most bytes of a password, with its terminating zero */
    PD_ETCD_TOKEN = 4096,   /* most bytes of a token, with its terminating zero */
};

/* The user, and its present token. Zeros: there is no user, and requests carry no token. */
typedef struct pd_etcd_login {
    const char *user; /* borrowed */
    char *body;       /* the request for a token: JSON; NULL: there is no user */
    char *header;     /* the header of requests that has the token; NULL: there is none */
    bool open;        /* etcd has said that it asks for no password now */
    uint64_t number;  /* number of the newest token: the first one has 1 */
} pd_etcd_login;

/* Prepares the request for a token. Borrows `user`, and copies the password. PD_INVALID_ARGUMENT: a text is empty, too
 * long or has control characters. PD_NO_MEMORY. */
int pd_etcd_login_init(pd_etcd_login *login, const char *user, const char *password, pd_error *err);
/* Overwrites and frees the password and the token. Accepts zeros. */
void pd_etcd_login_free(pd_etcd_login *login);

/* Returns whether a token must be got before another request is made. */
bool pd_etcd_login_is_due(const pd_etcd_login *login);
/* Keeps a token that etcd has sent. NULL: etcd asks for no password now. PD_DATA_LOSS: the token is too long, or cannot
 * be part of a header. PD_NO_MEMORY. */
int pd_etcd_login_take(pd_etcd_login *login, const char *token, pd_error *err);
/* Handles that a request was refused, which had token `number`: unless there is a newer one, another must be got. */
void pd_etcd_login_refused(pd_etcd_login *login, uint64_t number);

#endif
