/* parts.c - the tensors and chunks of a sent frame, and how many bytes of weights the answer brings for each. */
#include "parts.h"

pd_param_record *pd_part_known(const pd_core *core, const pd_outgoing_frame *frame, size_t part)
{
    if (frame->past != NULL) return &core->params[frame->past->parts[part].param];
    return &core->params[frame->op->items[frame->parts[part].item].param];
}

size_t pd_part_bytes(const pd_core *core, const pd_outgoing_frame *frame, size_t part)
{
    size_t bytes = frame->parts[part].bytes;

    if (bytes == 0 || !core->reply->outcomes[part]->update) return bytes;
    return bytes / sizeof(float) * pd_dtype_size(pd_part_known(core, frame, part)->update);
}

bool pd_part_buffered(const pd_core *core, const pd_outgoing_frame *frame, size_t part)
{
    return core->reply->outcomes[part]->update || frame->past != NULL;
}
