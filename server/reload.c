/* reload.c - reads the configuration again, and applies the values that may change while the daemon runs. */
#include "reload.h"

#include "flags.h"
#include "log.h"

void pd_reload_read(pd_reload *reload)
{
    pd_config *fresh = pd_config_new();
    pd_flags flags;

    pd_reload_end(reload);
    if (fresh == NULL)
        pd_fail(&reload->error, PD_NO_MEMORY, "out of memory");
    else if (pd_flags_read(fresh, reload->argv, reload->environment, &flags, &reload->error) == PD_OK &&
             pd_config_check(fresh, &reload->error) == PD_OK &&
             pd_config_tls(fresh, &reload->tls, &reload->error) == PD_OK)
        reload->fresh = fresh;
    if (reload->fresh == NULL) pd_config_free(fresh);
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
    pd_log(LOG_NOTICE, "reload: done, %zu keys have changed", n);
    pd_reload_end(reload);
    return n > 0;
}

void pd_reload_end(pd_reload *reload)
{
    pd_config_free(reload->fresh);
    reload->fresh = NULL;
    pd_tls_unref(reload->tls);
    reload->tls = NULL;
}
