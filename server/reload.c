/* reload.c - reads the configuration again, and applies the values that may change while the daemon runs. */
#include "reload.h"

#include "flags.h"
#include "log.h"
#include "roles_file.h"

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

void pd_reload_read(pd_reload *reload)
{
    pd_config *fresh = pd_config_new();
    pd_flags flags;

    pd_reload_end(reload);
    if (fresh == NULL)
        pd_fail(&reload->error, PD_NO_MEMORY, "out of memory");
    else if (pd_flags_read(fresh, reload->argv, reload->environment, &flags, &reload->error) == PD_OK &&
             pd_config_check(fresh, &reload->error) == PD_OK &&
             pd_config_tls(fresh, &reload->tls, &reload->error) == PD_OK &&
             pd_reload_read_roles(reload->config, &reload->roles, &reload->store_roles, &reload->error) == PD_OK)
        reload->fresh = fresh;
    if (reload->fresh != NULL) return;
    pd_config_free(fresh);
    pd_reload_end(reload); /* keys that were read before the error are not used either */
}

/* Applies the new value of one configuration key, if it may change while the daemon runs. Returns whether it has
 * changed. */
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

bool pd_reload_take(pd_reload *reload)
{
    size_t n = 0;

    if (reload->fresh == NULL) {
        pd_log(LOG_ERR, "reload: the configuration is wrong, the old values stay: %s", reload->error.text);
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
    pd_roles_free(reload->roles);
    pd_roles_free(reload->store_roles);
    reload->fresh = NULL;
    pd_tls_unref(reload->tls);
    reload->tls = NULL;
    reload->roles = reload->store_roles = NULL;
}
