/* etcd_login.c - makes the request for a token of etcd, and keeps the token. */
#define _DEFAULT_SOURCE /* explicit_bzero */
#include "etcd_login.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "Authorization: "

/* Overwrites and frees a text. Accepts NULL. */
static void forget(char *text)
{
    if (text != NULL) explicit_bzero(text, strlen(text));
    free(text);
}

/* Checks that a text has 1 to size - 1 bytes, and no control characters. */
static int check(const char *text, size_t size, const char *key, pd_error *err)
{
    if (text[0] == '\0' || strlen(text) >= size)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s: expected 1 to %zu bytes", key, size - 1);
    for (size_t i = 0; text[i] != '\0'; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == '\x7f')
            return pd_fail(err, PD_INVALID_ARGUMENT, "%s: expected no control characters", key);
    return PD_OK;
}

/* Writes a text without control characters as a JSON string. Returns the end of what was written. */
static char *quote(char *out, const char *text)
{
    *out++ = '"';
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') *out++ = '\\';
        *out++ = *text;
    }
    *out++ = '"';
    return out;
}

int pd_etcd_login_init(pd_etcd_login *login, const char *user, const char *password, pd_error *err)
{
    static const char name[] = "{\"name\":", middle[] = ",\"password\":";
    int rc = check(user, PD_ETCD_USER, "cluster.user", err);
    char *at;

    *login = (pd_etcd_login){ .user = user };
    if (rc == PD_OK) rc = check(password, PD_ETCD_PASSWORD, "cluster.password_file", err);
    if (rc != PD_OK) return rc;
    login->body = malloc(sizeof name + sizeof middle + 2 * (strlen(user) + strlen(password)) + sizeof "\"\"\"\"}");
    if (login->body == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    at = quote(stpcpy(login->body, name), user);
    at = quote(stpcpy(at, middle), password);
    strcpy(at, "}");
    return PD_OK;
}

void pd_etcd_login_free(pd_etcd_login *login)
{
    forget(login->body);
    forget(login->header);
    *login = (pd_etcd_login){ 0 };
}

bool pd_etcd_login_is_due(const pd_etcd_login *login)
{
    return login->body != NULL && login->header == NULL && !login->open;
}

/* Returns whether a token from etcd can be the value of a header. */
static bool fits(const char *token)
{
    size_t n = strlen(token);

    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] > '~') return false;
    return n > 0 && n < PD_ETCD_TOKEN;
}

int pd_etcd_login_take(pd_etcd_login *login, const char *token, pd_error *err)
{
    char *header = NULL;
    size_t room;

    if (token != NULL && !fits(token)) return pd_fail(err, PD_DATA_LOSS, "its token cannot be part of a header");
    if (token != NULL) {
        room = sizeof HEADER + strlen(token);
        if ((header = malloc(room)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        snprintf(header, room, HEADER "%s", token);
    }
    forget(login->header);
    login->header = header;
    login->open = token == NULL;
    login->number++;
    return PD_OK;
}

void pd_etcd_login_refused(pd_etcd_login *login, uint64_t number)
{
    if (number != login->number) return;
    forget(login->header);
    login->header = NULL;
    login->open = false;
}
