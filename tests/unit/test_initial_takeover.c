/* Tests initial_weights = mean when another process takes a rank over before the mean is computed. */
#include "test.h"
#include "mean_start.h"

/* Checks the mean of parameter `param`. The weights of rank 1 are expected to come from process `again` of this
 * rank; 0: its first process. */
static void assert_mean_with_another(rig *r, uint32_t param, uint64_t again)
{
    float a[MEAN_SIZE], b[MEAN_SIZE], c[MEAN_SIZE];

    mean_weights(0, param, a);
    mean_weights(1 + (uint32_t)again, param, b);
    mean_weights(2, param, c);
    assert_non_null(mean_published(r, param));
    for (int64_t i = 0; i < mean_sizes[param]; i++)
        assert_true(rig_weights(r, r->job, param)[i] == ((a[i] + b[i]) + c[i]) / 3.0f);
}

FIXTURE(rig_set_up, rig_tear_down);

TEST(weights_sent_in_part_are_replaced_by_the_next_process, rig *r)
{
    mean_join_all(r, NULL);
    mean_send_all(r, 0, 0);
    mean_send_all(r, 2, 0);
    mean_send_chunk(r, 1, 0, 0, 0);
    mean_send_chunk(r, 1, 0, 0, 64);
    rig_work(r); /* all three ranks have sent the first two chunks */
    mean_join(r, 1, 100, NULL, PD_F32);
    assert_true(r->must_init);
    assert_false(r->initialised[0]);
    assert_int_equal(mean_send_chunk(r, 1, 0, 0, 128), PD_ABORTED);
    assert_int_equal(mean_send_chunk(r, 1, 100, 0, 128), PD_OK);
    assert_int_equal(mean_send_chunk(r, 1, 100, 0, 192), PD_OK);
    rig_work(r);
    assert_null(mean_published(r, 0)); /* the new process must send the first two chunks again before the mean is
                                   * published */
    assert_string_equal(rig_ask(r, PD_INFO_PARAMS, "job")->params[0].missing, "1");
    mean_send_all(r, 1, 100);
    rig_work(r);
    for (uint32_t p = 0; p < MEAN_PARAMS; p++) assert_mean_with_another(r, p, 100);
    assert_int_equal(r->buffers_out, 0);
}

TEST(weights_sent_whole_stay_when_the_next_process_comes, rig *r)
{
    mean_join_all(r, NULL);
    mean_send_param(r, 1, 0, 0);
    mean_join(r, 1, 100, NULL, PD_F32);
    assert_true(r->must_init && r->initialised[0] && !r->initialised[1]);
    mean_send_all(r, 1, 100);
    mean_send_all(r, 0, 0);
    mean_send_all(r, 2, 0);
    rig_work(r);
    assert_mean_with_another(r, 0, 0);
    assert_mean_with_another(r, 1, 100);
}

/* The rank's process comes back on another connection, and is not taken for a new process. */
TEST(a_process_that_comes_back_goes_on, rig *r)
{
    mean_join_all(r, NULL);
    mean_send_chunk(r, 1, 0, 0, 0);
    assert_int_equal(rig_hello(r, "job", 1, MEAN_WORLD, 11, 77, "initial_weights=mean ", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 1, 77, mean_names, mean_shapes, NULL, MEAN_PARAMS, PD_F32), PD_OK);
    for (uint32_t p = 0; p < MEAN_PARAMS; p++)
        for (int64_t first = p == 0 ? 64 : 0; first < mean_sizes[p]; first += 64) {
            rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 77, 0);
            float values[MEAN_SIZE];
            mean_weights(1, p, values);
            rig_piece(frame, p, PD_F32, first, mean_sizes[p] - first < 64 ? mean_sizes[p] - first : 64, values + first);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
    mean_send_all(r, 0, 0);
    mean_send_all(r, 2, 0);
    rig_work(r);
    for (uint32_t p = 0; p < MEAN_PARAMS; p++) assert_mean_with_another(r, p, 0);
}

static int set_up_narrow(void **state)
{
    pd_store_config config = rig_config();

    config.ingest_bytes = MEAN_WORLD * 4096; /* the budget covers only the reserves of the ranks, so any frame puts its
                                         * rank over quota */
    return rig_set_up_with(state, &config);
}

/* Sends all chunks of all ranks, of which each is summed at once. `again`: the process at rank 1. */
static void send_narrow(rig *r, uint64_t again)
{
    for (uint32_t p = 0; p < MEAN_PARAMS; p++)
        for (int64_t first = 0; first < mean_sizes[p]; first += 64)
            for (uint32_t rank = 0; rank < MEAN_WORLD; rank++) {
                assert_int_equal(mean_send_chunk(r, rank, rank == 1 ? again : 0, p, first), PD_OK);
                rig_work(r);
            }
}

TEST_WITH(set_up_narrow, rig_tear_down, all_give_weights_again_if_those_of_a_lost_process_are_in_the_mean, rig *r)
{
    mean_join_all(r, NULL);
    mean_send_chunk(r, 0, 0, 0, 0);
    mean_send_chunk(r, 1, 0, 0, 0);
    rig_work(r);
    assert_int_equal(r->buffers_out, 0); /* both are summed */
    mean_join(r, 1, 100, NULL, PD_F32);
    assert_int_equal(mean_send_chunk(r, 1, 100, 0, 64), PD_OK);
    rig_work(r);
    for (uint32_t rank = 0; rank < MEAN_WORLD; rank += 2) {
        assert_int_not_equal(mean_send_chunk(r, rank, 0, 0, 0), PD_OK); /* it is told to come again */
        mean_join(r, rank, 0, NULL, PD_F32);
        assert_true(r->must_init && !r->initialised[0]);
    }
    send_narrow(r, 100);
    for (uint32_t p = 0; p < MEAN_PARAMS; p++) assert_mean_with_another(r, p, 100);
    assert_int_equal(r->buffers_out, 0);
}

TEST_WITH(set_up_narrow, rig_tear_down, ranks_over_quota_give_the_same_mean, rig *r)
{
    mean_join_all(r, NULL);
    send_narrow(r, 0);
    for (uint32_t p = 0; p < MEAN_PARAMS; p++) assert_mean_with_another(r, p, 0);
}
