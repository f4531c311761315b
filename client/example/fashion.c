/* fashion.c - one worker of a training job, in C. The workers divide each batch of images among them and compute
 * gradients. paramd averages the gradients, runs the optimizer and sends the new weights. Read main() first, then
 * join(), train() and take_step(). The model in classifier.h does not use paramd.
 *
 *     paramd & for rank in 0 1 2 3; do fashion --rank $rank --world-size 4 & done; wait */
#include <argp.h>
#include <jansson.h>
#include "classifier.h"
#include "paramd/client.h"

enum { URL = 1, JOB, RULE, OUT, RANK, WORLD_SIZE, SEED, EPOCHS, BATCH, SETTINGS };
static const struct argp_option options[] = {
    { "url", URL, "URL", 0, "where paramd listens [PARAMD_URL, else tcp://127.0.0.1:7070]", 0 },
    { "job", JOB, "NAME", 0, "the job to join [PARAMD_JOB, else default]", 0 },
    { "rank", RANK, "N", 0, "this worker's number, from 0 [RANK, else 0]", 0 },
    { "world-size", WORLD_SIZE, "N", 0, "number of workers [WORLD_SIZE, else 1]", 0 },
    { "rule", RULE, "RULE", 0, "which parameters get which optimizer [* sgd lr=0.1 momentum=0.9]", 0 },
    { "epochs", EPOCHS, "N", 0, "passes over the training images [8]", 0 },
    { "batch", BATCH, "N", 0, "images in a step, of all workers together [256]", 0 },
    { "seed", SEED, "N", 0, "of the initial weights and of the order of the images [1]", 0 },
    { "out", OUT, "PREFIX", 0, "rank 0 writes PREFIX.safetensors and PREFIX.jsonl [fashion]", 0 },
    { 0 },
};
static const char *text[SETTINGS] = { [RULE] = "* sgd lr=0.1 momentum=0.9", [OUT] = "fashion" };
static int number[SETTINGS] = { [SEED] = 1, [EPOCHS] = 8, [BATCH] = 256 };
static const char folder[] = "/usr/share/datasets/fashion-mnist";
static images training, test;
static mlp net;
static void *weights[TENSORS]; /* pointers to the first value of each tensor in `net.value` */
static pd_client *client;
static pd_error err;

static error_t on_option(int key, char *value, struct argp_state *state)
{
    char rest;
    if (key < URL || key >= SETTINGS) return ARGP_ERR_UNKNOWN;
    text[key] = value;
    if (key >= RANK && (sscanf(value, "%d%c", &number[key], &rest) != 1 || number[key] < (key < EPOCHS ? 0 : 1)))
        argp_error(state, "%s: expected a whole number%s", value, key < EPOCHS ? "" : " above 0");
    if (number[BATCH] > MOST_BATCH) argp_error(state, "--batch: expected at most %d", MOST_BATCH);
    return 0;
}

/* Joins the job, declares the parameters, and gets the first weights: those of rank 0, or the current weights of a
 * job that has already begun. */
static int join(void)
{
    char seed[32];
    pd_client_param params[TENSORS] = { 0 };
    pd_client_options me = { .urls = text[URL], .job = text[JOB], .rank = number[RANK] };
    int rc;
    me.world_size = number[WORLD_SIZE];
    me.options = (const char *[]){ "aggregate=weighted_mean", seed, NULL };
    me.rules = (const char *[]){ text[RULE], NULL };
    /* All workers need the same seed: paramd refuses a worker with another one. */
    snprintf(seed, sizeof seed, "seed=%d", number[SEED]);
    if ((rc = pd_client_open(&client, &me, &err)) != PD_OK) return rc;
    mlp_init(&net, number[SEED]);
    for (int t = 0; t < TENSORS; t++) {
        params[t].name = tensor_name[t];
        params[t].shape = (pd_shape){ 2 - t % 2, { width[t / 2 + 1], t % 2 == 0 ? width[t / 2] : 0 } };
        weights[t] = net.value + tensor_at[t];
    }
    if ((rc = pd_client_declare(client, params, TENSORS, &err)) != PD_OK) return rc;
    return pd_client_init(client, weights, &err);
}

/* Returns the number of steps that all parameters have taken. After a worker's death, some parameters may be one
 * step ahead of others. */
static int steps_taken(void)
{
    uint64_t least = UINT64_MAX;
    for (size_t t = 0; t < TENSORS; t++)
        if (pd_client_step(client, t) < least) least = pd_client_step(client, t);
    return (int)least;
}

/* Computes gradients for this worker's examples of a batch, pushes them, and pulls the new weights. Sets *loss to the
 * mean loss of all workers. */
static int take_step(int step, int first, double *loss)
{
    const pd_welcome *me = pd_client_welcome(client);
    int n = images_take(&training, first + me->rank, first + number[BATCH], me->world_size, net.out[0], net.label), rc;
    pd_scalar mine = { .name = "loss", .value = mlp_differentiate(&net, n) };
    pd_push_options push = { .weight = n, .zero_weight = n == 0, .scalars = &mine, .n_scalars = isfinite(mine.value) };
    pd_item items[TENSORS];
    pd_ticket_id ticket;
    size_t count = 0;
    for (size_t t = 0; t < TENSORS; t++)
        if (pd_client_step(client, t) == (uint64_t)step)
            items[count++] = (pd_item){ .param = t, .gradient = net.gradient + tensor_at[t], .weights = weights[t] };
    rc = pd_client_push_pull(client, items, count, &push, &ticket, &err);
    if (rc == PD_OK) /* A program with other work can do it here, before it waits for the new weights. */
        rc = pd_client_wait(client, ticket, 0, &err);
    *loss = mine.mean;
    return rc;
}

/* Opens the output file PREFIX.suffix, where PREFIX is the option --out. Ends the program on an error. */
static FILE *create(const char *suffix, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", text[OUT], suffix);
    FILE *file = fopen(path, mode);
    if (file == NULL) perror(path), exit(1);
    return file;
}

/* Takes the remaining steps. Rank 0 logs the loss of each step, and tests the model after each epoch. */
static int train(void)
{
    const pd_welcome *me = pd_client_welcome(client);
    int epochs = number[EPOCHS], per_epoch = training.n / number[BATCH], steps = per_epoch * epochs;
    int step = steps_taken(), epoch = -1, rc = PD_OK;
    FILE *log = me->rank == 0 ? create("jsonl", step == 0 ? "w" : "a") : NULL;
    double loss, accuracy;
    printf("rank %d %s the job, step %d of %d\n", me->rank, me->created ? "created" : "joined", step, steps);
    for (; step < steps && rc == PD_OK; step++) {
        if (step % per_epoch == 0) fflush(NULL); /* writes buffered output, so that it can be read during training */
        if (step / per_epoch != epoch) images_shuffle(&training, number[SEED], epoch = step / per_epoch);
        rc = take_step(step, step % per_epoch * number[BATCH], &loss);
        if (rc == PD_REWIND || rc == PD_DATA_LOSS) { /* paramd was restarted: the job goes on from its last checkpoint,
                                                      * or else from the weights that the workers hold */
            fprintf(stderr, "fashion: %s\n", err.text);
            rc = rc == PD_REWIND ? pd_client_rewind(client, weights, &err) : pd_client_restart(client, weights, &err);
            if (rc == PD_OK) step = steps_taken() - 1;
        } else if (rc == PD_OK && log != NULL) {
            if (isfinite(loss)) fprintf(log, "{\"step\": %d, \"train_loss\": %.6g}\n", step + 1, loss);
            if ((step + 1) % per_epoch != 0) continue;
            loss = mlp_test(&net, &test, &accuracy);
            fprintf(log, "{\"step\": %d, \"test_loss\": %.6g, \"test_accuracy\": %.4f}\n", step + 1, loss, accuracy);
            printf("epoch %d/%d  test accuracy %.2f %%  test loss %.4f\n", epoch + 1, epochs, 100 * accuracy, loss);
        }
    }
    return rc;
}

/* Writes the weights as a safetensors file: the length of the JSON header, then the header, then the values of all
 * tensors. */
static int save(void)
{
    json_t *header = json_object();
    for (int t = 0; t < TENSORS; t++) {
        json_t *shape = json_pack(t % 2 == 0 ? "[i,i]" : "[i]", width[t / 2 + 1], width[t / 2]);
        json_t *entry = json_pack("{s:s, s:o, s:[i,i]}", "dtype", "F32", "shape", shape, "data_offsets",
                                  4 * tensor_at[t], 4 * tensor_at[t + 1]);
        json_object_set_new(header, tensor_name[t], entry);
    }
    uint64_t bytes = json_dumpb(header, NULL, 0, 0);
    FILE *file = create("safetensors", "wb");
    fwrite(&bytes, sizeof bytes, 1, file);
    json_dumpf(header, file, 0);
    fwrite(net.value, sizeof net.value, 1, file);
    json_decref(header);
    return ferror(file) == 0 && fclose(file) == 0 ? PD_OK : pd_fail(&err, PD_UNAVAILABLE, "cannot write the weights");
}

int main(int argc, char **argv)
{
    static const struct argp argp = { options, on_option, NULL, "Trains on Fashion-MNIST.", NULL, NULL, NULL };
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    openblas_set_num_threads(1); /* one thread for each worker, since the workers share this machine's cores */
    int rc = images_load(&training, folder, "train", &err);
    if (rc == PD_OK) rc = images_load(&test, folder, "t10k", &err);
    if (rc == PD_OK) rc = join();
    if (rc == PD_OK) rc = train();
    if (rc == PD_OK && pd_client_welcome(client)->rank == 0) rc = save();
    if (rc == PD_OK) rc = pd_client_leave(client, &err);
    if (rc != PD_OK) fprintf(stderr, "fashion: %s: %s\n", pd_code_name(rc), err.text);
    pd_client_close(client);
    return rc == PD_OK ? 0 : 1;
}
