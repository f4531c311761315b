/* loan.c - counts the users of a worker's segment, and unmaps it after the last one. */
#include "loan.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "frame.h"
#include "mutant.h"

struct pd_loan {
    pd_background work; /* must be the first member: the work that unmaps the segment is cast to its loan */
    pd_segment segment;
    uint64_t refs;
};

int pd_loan_new(pd_loan **out, int fd, uint64_t bytes, pd_error *err)
{
    pd_segment segment;
    int rc = pd_segment_map_full(&segment, fd, bytes, err);

    if (rc != PD_OK) return rc;
    if ((*out = calloc(1, sizeof **out)) == NULL) {
        pd_segment_drop(&segment);
        return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    }
    (*out)->segment = segment;
    (*out)->refs = 1;
    return PD_OK;
}

static void unmap(pd_background *work)
{
    pd_segment_drop(&((pd_loan *)work)->segment);
}

static void unmapped(pd_background *work)
{
    free(work);
}

static void unref(pd_loan *loan, const pd_platform *platform)
{
    if (--loan->refs > 0) return;
    loan->work = (pd_background){ .run = unmap, .done = unmapped };
    if (platform->background != NULL && platform->background(platform->arg, &loan->work)) return;
    unmap(&loan->work);
    unmapped(&loan->work);
}

void pd_loan_unref(pd_loan *loan, const pd_platform *platform)
{
    if (loan == NULL) return;
    if (PD_MUTANT(loan_ends_with_connection)) pd_segment_drop(&loan->segment);
    unref(loan, platform);
}

bool pd_loan_has(const pd_loan *loan, uint32_t place, uint64_t bytes)
{
    uint64_t first = (uint64_t)place * PD_PAYLOAD_ALIGN;
    uint64_t beyond = PD_MUTANT(loan_has_a_unit_more) ? PD_PAYLOAD_ALIGN : 0;

    return first < loan->segment.bytes && bytes <= loan->segment.bytes - first + beyond;
}

pd_buffer *pd_loan_buffer(pd_loan *loan, uint64_t conn, uint32_t place, uint64_t bytes)
{
    pd_buffer *buffer = calloc(1, sizeof *buffer);

    assert(pd_loan_has(loan, place, bytes));
    if (buffer == NULL) return NULL;
    *buffer = (pd_buffer){
        .conn = conn, .size = bytes, .at = loan->segment.at + (uint64_t)place * PD_PAYLOAD_ALIGN, .lender = loan
    };
    loan->refs++;
    return buffer;
}

void pd_loan_return(pd_buffer *buffer, const pd_platform *platform)
{
    pd_loan *loan = buffer->lender;

    free(buffer);
    unref(loan, platform);
}
