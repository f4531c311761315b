/* diloco.c - one worker of a training over a slow link, in C. Each worker trains the model of classifier.h by itself,
 * with AdamW. Every 60 steps it exchanges what it has learned, layer by layer, and computes on meanwhile. Read main()
 * first, then join() and train().
 *
 *     paramd & for rank in 0 1; do RANK=$rank WORLD_SIZE=2 diloco & done; wait
 *
 * An argument is the number of passes over the training images [2]. */
#include "classifier.h"
#include "paramd/diloco.h"
#include "paramd/optim.h"

enum { BATCH = 64, SYNC_EVERY = 60, SEED = 1 };
static images training, test;
static mlp net;
static float *weights[TENSORS]; /* pointers to the first value of each tensor in `net.value` */
static pd_client *client;
static pd_model *adamw;  /* the inner optimizer: its state stays in this worker */
static pd_diloco *outer; /* what this worker exchanges with the others */
static pd_error err;

/* Joins the job, declares each layer as a fragment, and gets the first weights. */
static int join(void)
{
    pd_client_param params[TENSORS] = { 0 };
    pd_declaration inner[TENSORS] = { 0 };
    pd_client_options me = { .rules = (const char *[]){ "* sgd lr=0.7 momentum=0.9 nesterov=true", NULL } };
    pd_diloco_options how = { .sync_every = SYNC_EVERY, .fragment_sync_delay = 4, .fragment_update_alpha = 0.5 };
    int rc;
    if ((rc = pd_client_open(&client, &me, &err)) != PD_OK) return rc;
    mlp_init(&net, SEED);
    for (int t = 0; t < TENSORS; t++) {
        params[t].name = inner[t].name = tensor_name[t];
        params[t].shape = inner[t].shape = (pd_shape){ 2 - t % 2, { width[t / 2 + 1], t % 2 == 0 ? width[t / 2] : 0 } };
        params[t].fragment = (uint32_t)t / 2;
        pd_hypers_init(&inner[t].hypers, pd_optim_find("adamw"));
        weights[t] = net.value + tensor_at[t];
    }
    if ((rc = pd_client_declare(client, params, TENSORS, &err)) != PD_OK) return rc;
    if ((rc = pd_client_init(client, (void *const *)weights, &err)) != PD_OK) return rc;
    if ((rc = pd_model_new(&adamw, inner, TENSORS, 1, &err)) != PD_OK) return rc;
    return pd_diloco_make(&outer, client, weights, &how, &err);
}

/* Takes an inner step on this worker's part of the images, which begins at position `first` of the epoch. Then
 * exchanges a layer, if one is due. */
static int take_step(int first)
{
    const pd_welcome *me = pd_client_welcome(client);
    int stride = me->world_size, rc;
    int n = images_take(&training, first + me->rank, first + BATCH * stride, stride, net.out[0], net.label);
    pd_step_io io[TENSORS] = { 0 };
    mlp_differentiate(&net, n);
    for (int t = 0; t < TENSORS; t++) {
        io[t].gradient = net.gradient + tensor_at[t];
        io[t].before = io[t].after = weights[t];
    }
    if ((rc = pd_model_step(adamw, io, &err)) != PD_OK) return rc;
    rc = pd_diloco_step(outer, weights, n, &err);
    if (rc != PD_REWIND && rc != PD_DATA_LOSS) return rc;
    fprintf(stderr, "diloco: %s\n", err.text); /* paramd was restarted: go on from its weights */
    return pd_diloco_resume(outer, weights, &err);
}

/* Tests the global weights, and prints what was sent for them. The worker's own weights stay as they are. */
static void report(int epoch, int epochs)
{
    static float own[sizeof net.value / sizeof(float)];
    pd_diloco_status now = pd_diloco_status_now(outer);
    double accuracy, loss, sent = (double)now.payload_out, plain = (double)now.inner_steps * sizeof net.value;
    memcpy(own, net.value, sizeof own);
    for (size_t t = 0; t < TENSORS; t++)
        memcpy(weights[t], pd_diloco_global(outer, t), (size_t)(tensor_at[t + 1] - tensor_at[t]) * sizeof(float));
    loss = mlp_test(&net, &test, &accuracy);
    memcpy(net.value, own, sizeof own);
    printf("epoch %d/%d  test accuracy %.2f %%  test loss %.4f\n", epoch, epochs, 100 * accuracy, loss);
    printf("%d contributions, MB sent for the %d that counted: %.1f; MB of gradients of each step: %.1f\n",
           (int)now.pushes, (int)now.counted, sent / 1e6, plain / 1e6);
}

static int train(int epochs)
{
    const pd_welcome *me = pd_client_welcome(client);
    int share = BATCH * me->world_size, per_epoch = training.n / share, rc = PD_OK;
    for (int epoch = 0; epoch < epochs && rc == PD_OK; epoch++) {
        images_shuffle(&training, SEED, epoch);
        for (int step = 0; step < per_epoch && rc == PD_OK; step++) rc = take_step(step * share);
        if (rc == PD_OK) rc = pd_diloco_finish(outer, weights, &err);
        if (rc == PD_OK && me->rank == 0) report(epoch + 1, epochs);
    }
    return rc;
}

int main(int argc, char **argv)
{
    int rc;
    openblas_set_num_threads(1); /* one thread for each worker, since the workers share this machine's cores */
    rc = images_load(&training, "/usr/share/datasets/fashion-mnist", "train", &err);
    if (rc == PD_OK) rc = images_load(&test, "/usr/share/datasets/fashion-mnist", "t10k", &err);
    if (rc == PD_OK) rc = join();
    if (rc == PD_OK) rc = train(argc > 1 ? atoi(argv[1]) : 2);
    if (rc == PD_OK) rc = pd_client_leave(client, &err);
    if (rc != PD_OK) fprintf(stderr, "diloco: %s: %s\n", pd_code_name(rc), err.text);
    pd_diloco_free(outer);
    pd_model_free(adamw);
    pd_client_close(client);
    return rc == PD_OK ? 0 : 1;
}
