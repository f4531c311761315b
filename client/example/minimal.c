/* minimal.c - the shortest worker program: fits the line y = 3 x + 2, and prints the loss. Compiles as C and as C++.
 *
 *     cc minimal.c $(pkg-config --cflags --libs paramd) -o minimal
 *     for rank in 0 1; do RANK=$rank WORLD_SIZE=2 ./minimal & done; wait */
#include <paramd/client.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXAMPLES = 64, STEPS = 40 };

static void check(int code, const pd_error *err)
{
    if (code == PD_OK) return;
    fprintf(stderr, "minimal: %s: %s\n", pd_code_name(code), err->text);
    exit(1);
}

/* Returns the loss of this rank's examples and computes its gradient. w[0] is the slope of the line, w[1] its value
 * at x = 0. */
static float examine(const pd_welcome *job, const float *w, float *gradient)
{
    float loss = gradient[0] = gradient[1] = 0;
    for (int i = job->rank; i < EXAMPLES; i += job->world_size) {
        float x = 2.0f * (float)i / (EXAMPLES - 1) - 1, error = w[0] * x + w[1] - (3 * x + 2);
        loss += error * error * (float)job->world_size / EXAMPLES;
        gradient[0] += 2 * error * x * (float)job->world_size / EXAMPLES;
        gradient[1] += 2 * error * (float)job->world_size / EXAMPLES;
    }
    return loss;
}

int main(void)
{
    static const char *const rules[] = { "* sgd lr=0.5", NULL };
    static pd_client_options options; /* all zero: settings come from PARAMD_URL, PARAMD_JOB, RANK and WORLD_SIZE */
    static pd_client_param param;
    float weights[2] = { 0, 0 }, gradient[2];
    pd_item item = { 0, gradient, weights, 0, 0, 0 };
    pd_client *client;
    pd_ticket_id ticket;
    pd_error err;

    if (getenv("PARAMD_JOB") == NULL) options.job = "line"; /* all workers must give the same job */
    options.rules = rules;
    param.name = "line";
    param.shape.rank = 1;
    param.shape.dim[0] = 2;
    check(pd_client_open(&client, &options, &err), &err);
    check(pd_client_declare(client, &param, 1, &err), &err);
    check(pd_client_init(client, &item.weights, &err), &err);
    const pd_welcome *job = pd_client_welcome(client);
    printf("created %d, starts at step %d\n", job->created, (int)pd_client_step(client, 0));
    for (int step = (int)pd_client_step(client, 0); step < STEPS; step++) {
        float loss = examine(job, weights, gradient);
        if (step % 10 == 0) printf("step %d: loss %g\n", step, loss);
        check(pd_client_push_pull(client, &item, 1, NULL, &ticket, &err), &err);
        check(pd_client_wait(client, ticket, 0, &err), &err);
    }
    printf("loss %g: y = %.3f x + %.3f\n", examine(job, weights, gradient), weights[0], weights[1]);
    check(pd_client_leave(client, &err), &err);
    pd_client_close(client);
}
