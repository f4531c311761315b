/* replay_FOLDER: the share of a folder's recorded traces whose replay is ok. A trace of a training run is played in
 * this process and through a live daemon. A trace of single calls of a routine is played only in this process, since
 * no daemon computes it. Traces that record a defect of the original, or no run, are left out, and the note has
 * their number. A trace that is skipped for another reason counts as not ok.
 *
 *     figure_replay_folder FOLDER */
#include <dirent.h>

#include "figure.h"
#include "replay.h"

typedef struct tally {
    int played, ok, excused;
} tally;

/* Plays a trace and counts its result in `t`. Returns true for a trace of a training run, which a daemon can play
 * too; false for a trace of single calls of a routine. */
static bool play(tally *t, const char *path, const pd_replay_options *options)
{
    pd_replay_result result;
    bool is_run;

    pd_replay_file(&result, path, options);
    is_run = !result.cases;
    t->played += !result.excused;
    t->excused += result.excused;
    t->ok += result.outcome == PD_REPLAY_OK;
    if (result.outcome != PD_REPLAY_OK)
        fprintf(stderr, "%s %s: error %.3g, tolerance %.3g. %s\n", path, options->local ? "here" : "through a daemon",
                result.verdict.error, result.tolerance, result.why.text);
    pd_replay_result_free(&result);
    return is_run;
}

static int traces_only(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 12 && strcmp(entry->d_name + length - 12, ".safetensors") == 0;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    pd_child daemon;
    tally here = { 0 }, live = { 0 };
    int n;

    if (argc != 2) figure_stop("usage: %s FOLDER", argv[0]);
    if ((n = scandir(argv[1], &entries, traces_only, alphasort)) <= 0) figure_stop("no traces in %s", argv[1]);
    figure_daemon(&daemon);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        if (play(&here, path, &(pd_replay_options){ .local = true }))
            play(&live, path, &(pd_replay_options){ .server = daemon.url, .timeout = 10 });
        free(entries[i]);
    }
    free(entries);
    pd_child_stop(&daemon);
    if (here.played == 0) figure_stop("nothing in %s can be played", argv[1]);
    printf("%.4f\t%d of %d here, %d of %d through a daemon; %d left out: defects of upstream's, and data\n",
           (double)(here.ok + live.ok) / (here.played + live.played), here.ok, here.played, live.ok, live.played,
           here.excused);
    return 0;
}
