/* Replays every recorded average of Trax (folder trax_average), both with the arithmetic library and through a
 * daemon. Checks that the cases which Trax refuses (refused.json) are refused here too. */
#include "test.h"
#include "golden.h"
#include "recipe.h"
#include "replayed.h"

static json_t *refused;

static int open_refused(void **state)
{
    (void)state;
    refused = golden_table("trax_average/refused.json");
    return 0;
}

static int close_refused(void **state)
{
    (void)state;
    json_decref(refused);
    return 0;
}

/* Checks that a configuration is refused if upstream raises an error for it. If upstream computes a meaningless
 * result instead, our recipe must name that defect. */
TEST(refuses_what_upstream_refuses)
{
    json_t *entry;
    size_t i;

    json_array_foreach(refused, i, entry)
    {
        pd_recipe recipe;
        pd_error err = { 0 };
        json_t *config = json_deep_copy(entry);
        int rc;
        json_object_set_new(config, "adasum", json_true());
        rc = pd_recipe_read(&recipe, "trax_average", config, &err);
        if (json_is_string(json_object_get(entry, "error")))
            assert_true(rc == PD_INVALID_ARGUMENT || rc == PD_UNIMPLEMENTED);
        else
            assert_true(rc == PD_OK && recipe.defect != NULL);
        pd_recipe_free(&recipe);
        json_decref(config);
    }
    assert_true(i > 0);
}

GROUP(open_refused, close_refused);

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("trax_average", REPLAYED_NO_STATE);
}
