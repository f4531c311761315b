/* admission.c - divides the ingest budget among the ranks. */
#include "admission.h"
#include "mutant.h"
#include "store_config.h"

#include <assert.h>
#include <stddef.h>

int pd_admission_join(pd_admission *admission, pd_quota *quota, uint64_t reserve, pd_error *err)
{
    uint64_t others = admission->reserved - quota->reserve;

    assert(reserve > 0);
    if (reserve > admission->budget || others > admission->budget - reserve)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "this rank needs room for frames of %llu bytes, and so many bytes of ingest budget are not free "
                       "now: come again when another job has ended, raise limits.ingest_bytes (%llu), or lower "
                       "limits.max_payload",
                       (unsigned long long)reserve, (unsigned long long)admission->budget);
    if (quota->reserve == 0) admission->ranks++;
    admission->reserved = others + reserve;
    quota->reserve = reserve;
    return PD_OK;
}

void pd_admission_leave(pd_admission *admission, pd_quota *quota)
{
    if (quota->reserve == 0) return;
    admission->reserved -= quota->reserve;
    admission->ranks--;
    quota->reserve = 0;
}

bool pd_admission_take(pd_admission *admission, pd_quota *quota, uint64_t bytes)
{
    uint64_t most = quota->reserve + pd_spare_part(admission->budget - admission->reserved, admission->ranks);

    if (quota->reserve == 0 && admission->used > 0 && admission->used + bytes > admission->budget) return false;
    assert(quota->reserve == 0 || bytes <= quota->reserve);
    if (quota->reserve > 0 && quota->charged > 0) {
        if (quota->charged + bytes > most) return false;
        /* The rank's own part has room, but the budget may have none: payload buffers of ranks that have left count
         * against it until they are freed. */
        if (admission->used + bytes > admission->budget) return false;
    }
    quota->charged += bytes;
    admission->used += bytes;
    return true;
}

void pd_admission_give(pd_admission *admission, pd_quota *quota, uint64_t bytes)
{
    if (PD_MUTANT(budget_leak) && quota == NULL) return;
    assert(admission->used >= bytes && (quota == NULL || quota->charged >= bytes));
    admission->used -= bytes;
    if (quota != NULL) quota->charged -= bytes;
}
