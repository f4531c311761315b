/* first_order.c - adds slots to the plans of the element-wise optimizers. */
#include "first_order.h"

int pd_plan_slots(pd_plan *plan, const char *const *names)
{
    int slot = 0;

    for (; *names != NULL && slot >= 0; names++)
        slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = *names, .number = -1, .shape = plan->shape });
    return slot < 0 ? slot : PD_OK;
}

int pd_plan_number(pd_plan *plan, const char *name, float fill)
{
    int slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = name,
                                                   .number = -1,
                                                   .shape = { 1, { 1 } },
                                                   .fill = fill,
                                                   .follows_known = true,
                                                   .follows = { -1 } });

    return slot < 0 ? slot : PD_OK;
}
