/* reload.c - reads the configuration again, and applies the values that may change while the daemon runs. */
#include "reload.h"

#include "flags.h"
#include "log.h"
#include "trusted_files.h"
#include "token.h"

#include <string.h>

int pd_reload_read_roles(const pd_config *config, pd_roles **roles, pd_roles **copy, pd_error *err)
{
    int rc;

    *roles = *copy = NULL;
    if (config->roles[0] == '\0') return PD_OK;
    if ((rc = pd_roles_file_read(roles, config->roles, err)) != PD_OK) return rc;
    if ((*copy = pd_roles_copy(*roles)) != NULL) return PD_OK;
    pd_roles_free(*roles);
    *roles = NULL;
    return pd_fail(err, PD_NO_MEMORY, "out of memory for the roles");
}

int pd_reload_read_token(const pd_config *config, char **token, pd_error *err)
{
    *token = NULL;
    return config->http_token[0] != '\0' ? pd_token_read(token, config->http_token, "http.token", err) : PD_OK;
}

/* Checks that clients of the open listeners still need credentials, if they needed them before. Without credentials,
 * listeners that other machines can reach would not have been allowed. */
static int check_credentials(const pd_config *now, const pd_config *fresh, pd_error *err)
{
    if (now->insecure) return PD_OK;
    if (pd_config_identifies(now) && !pd_config_identifies(fresh))
        return pd_fail(err, PD_PERMISSION_DENIED,
                       "tls.tokens and tls.client_ca were removed, so anyone could connect: that needs a restart");
    if (now->http_token[0] != '\0' && fresh->http_token[0] == '\0')
        return pd_fail(err, PD_PERMISSION_DENIED,
                       "http.token was removed, so anyone could read the figures of jobs: that needs a restart");
    return PD_OK;
}

/* Reads the files that the new configuration names. The listeners stay the same, so the present value of server.listen
 * decides whether the files of [tls] are needed. */
static int read_files(pd_reload *reload, const pd_config *fresh, pd_error *err)
{
    int rc = pd_config_tls(fresh, reload->config->listen, &reload->tls, err);

    if (rc == PD_OK) rc = pd_reload_read_roles(reload->config, &reload->roles, &reload->store_roles, err);
    return rc == PD_OK ? pd_reload_read_token(fresh, &reload->http_token, err) : rc;
}

void pd_reload_read(pd_reload *reload)
{
    pd_config *fresh = pd_config_new();
    pd_flags flags;

    pd_reload_end(reload);
    if (fresh == NULL)
        pd_fail(&reload->error, PD_NO_MEMORY, "out of memory");
    else if (pd_flags_read(fresh, reload->argv, reload->environment, &flags, &reload->error) == PD_OK &&
             pd_config_check(fresh, &reload->error) == PD_OK &&
             check_credentials(reload->config, fresh, &reload->error) == PD_OK &&
             read_files(reload, fresh, &reload->error) == PD_OK)
        reload->fresh = fresh;
    if (reload->fresh != NULL) return;
    pd_config_free(fresh);
    pd_reload_end(reload); /* also frees what was read before the error */
}

/* Applies the new value of one configuration key, if the key may change while the daemon runs. Returns whether the
 * value has changed. */
static bool take_key(pd_reload *reload, size_t i)
{
    const pd_key *key = &reload->config->keys[i];
    const char *before = reload->config->text[i], *after = reload->fresh->text[i];

    if (!pd_config_differs(reload->config, reload->fresh, key)) return false;
    if (!key->reload) {
        pd_log(LOG_WARNING, "reload: %s.%s = %s needs a restart; it stays %s", key->section, key->name, after, before);
        return false;
    }
    pd_log(LOG_NOTICE, "reload: %s.%s = %s (it was %s)", key->section, key->name, after, before);
    pd_config_take(reload->config, reload->fresh, key);
    return true;
}

pd_tls_context *pd_reload_take_tls(pd_reload *reload)
{
    pd_tls_context *tls = reload->tls;

    reload->tls = NULL;
    if (tls != NULL) pd_log(LOG_NOTICE, "reload: the files of [tls] were read again");
    return tls;
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool pd_reload_take_token(pd_reload *reload, char **token)
{
    if (reload->fresh == NULL || is_same(*token, reload->http_token)) return false;
    pd_secret_free(*token);
    *token = reload->http_token;
    reload->http_token = NULL;
    pd_log(LOG_NOTICE, *token != NULL ? "reload: HTTP requests now need the new token of http.token"
                                      : "reload: HTTP requests no longer need a token");
    return true;
}

bool pd_reload_take(pd_reload *reload)
{
    size_t n = 0;

    if (reload->fresh == NULL) {
        pd_log(LOG_ERR, "reload: invalid configuration, the old values stay in use: %s", reload->error.text);
        return false;
    }
    for (size_t i = 0; i < reload->config->n_keys; i++) n += take_key(reload, i);
    pd_log(LOG_NOTICE, "reload: done, %zu keys have changed%s", n, reload->roles != NULL ? ", roles were read" : "");
    pd_config_free(reload->fresh);
    reload->fresh = NULL;
    return n > 0 || reload->roles != NULL;
}

void pd_reload_end(pd_reload *reload)
{
    pd_config_free(reload->fresh);
    pd_secret_free(reload->http_token);
    reload->http_token = NULL;
    pd_roles_free(reload->roles);
    pd_roles_free(reload->store_roles);
    reload->fresh = NULL;
    pd_tls_unref(reload->tls);
    reload->tls = NULL;
    reload->roles = reload->store_roles = NULL;
}
