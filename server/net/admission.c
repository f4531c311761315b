/* admission.c - divides the ingest budget among the ranks. */
#include "admission.h"
#include "plant.h"

#include <assert.h>
#include <stddef.h>

int pd_admission_join(pd_admission *admission, pd_share *share, uint64_t reserve, pd_error *err)
{
    uint64_t others = admission->reserved - share->reserve;

    assert(reserve > 0);
    if (reserve > admission->budget || others > admission->budget - reserve)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "this rank needs room for frames of %llu bytes, but %llu of the "
                       "%llu bytes that may be in flight are reserved by other ranks: raise limits.ingest_bytes or "
                       "lower limits.max_payload", (unsigned long long)reserve, (unsigned long long)others,
                       (unsigned long long)admission->budget);
    if (share->reserve == 0) admission->ranks++;
    admission->reserved = others + reserve;
    share->reserve = reserve;
    return PD_OK;
}

void pd_admission_leave(pd_admission *admission, pd_share *share)
{
    if (share->reserve == 0) return;
    admission->reserved -= share->reserve;
    admission->ranks--;
    share->reserve = 0;
}

bool pd_admission_take(pd_admission *admission, pd_share *share, uint64_t bytes)
{
    uint64_t spare = admission->budget - admission->reserved;
    uint64_t most = share->reserve + (admission->ranks > 0 ? spare / admission->ranks : 0);

    if (share->reserve == 0 && admission->used > 0 && admission->used + bytes > admission->budget) return false;
    assert(share->reserve == 0 || bytes <= share->reserve);
    if (share->reserve > 0 && share->charged > 0) {
        if (share->charged + bytes > most) return false;
        /* Bytes of ranks that have gone count until they come home. */
        if (admission->used + bytes > admission->budget) return false;
    }
    share->charged += bytes;
    admission->used += bytes;
    return true;
}

void pd_admission_give(pd_admission *admission, pd_share *share, uint64_t bytes)
{
    if (PD_PLANTED(budget_leak) && share == NULL) return;
    assert(admission->used >= bytes && (share == NULL || share->charged >= bytes));
    admission->used -= bytes;
    if (share != NULL) share->charged -= bytes;
}
