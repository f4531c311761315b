/* attacks_of_operators.c - attacks by requests of operators: lists, settings, imports, exports and commands. */
#include "attacks.h"

enum { CONTROLS = 16, SETTERS = 8, STEPS_SET = 64, IMPORTS = 16, EXPORTS = 64, PIECE = 65536 };

static bool flood_of_operators(attack_scene *s, size_t n)
{
    s->most = CONTROLS;
    return attack_operators(s, n);
}

static bool prepare_status(attack_scene *s)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    attack_add(s, PD_STATUS, &empty.base, 0);
    return attack_make_job(s, 1) && flood_of_operators(s, ATTACK_FOES);
}

static bool prepare_shards(attack_scene *s)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    attack_add(s, PD_SHARDS, &empty.base, 0);
    return flood_of_operators(s, ATTACK_FOES);
}

static bool prepare_optimizers(attack_scene *s)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;

    attack_add(s, PD_OPTIMIZERS, &request.base, 0);
    return flood_of_operators(s, ATTACK_FOES);
}

/* Adds requests for pages of a list, by all hostile patterns, at the beginning and near the end. */
static void add_lists(attack_scene *s, uint32_t what)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;

    request.what = what;
    request.job = what == PARAMD__LIST_KIND__LIST_JOBS ? (char *)"" : (char *)s->job;
    for (const char *const *pattern = attack_patterns(); *pattern != NULL; pattern++) {
        request.param = (char *)*pattern;
        request.start = 0;
        attack_add(s, PD_LIST, &request.base, 0);
        request.start = s->params - s->params / 256;
        attack_add(s, PD_LIST, &request.base, 0);
    }
}

static bool prepare_list(attack_scene *s, uint32_t what)
{
    add_lists(s, what);
    return attack_make_job(s, 1) && flood_of_operators(s, ATTACK_FOES);
}

static bool prepare_list_jobs(attack_scene *s)
{
    return prepare_list(s, PARAMD__LIST_KIND__LIST_JOBS);
}

static bool prepare_list_params(attack_scene *s)
{
    return prepare_list(s, PARAMD__LIST_KIND__LIST_PARAMS);
}

/* A list of a job of 4,096 ranks, of which one has come: the parameters wait for all others. */
static bool prepare_list_of_many(attack_scene *s, uint32_t what)
{
    if (s->params > ATTACK_PARAMS_OF_MANY) s->params = ATTACK_PARAMS_OF_MANY;
    add_lists(s, what);
    return attack_make_job(s, ATTACK_MANY) && flood_of_operators(s, ATTACK_FOES);
}

static bool prepare_list_missing(attack_scene *s)
{
    return prepare_list_of_many(s, PARAMD__LIST_KIND__LIST_PARAMS);
}

static bool prepare_list_workers(attack_scene *s)
{
    return prepare_list_of_many(s, PARAMD__LIST_KIND__LIST_WORKERS);
}

static bool prepare_list_roots(attack_scene *s)
{
    return prepare_list(s, PARAMD__LIST_KIND__LIST_ROOTS);
}

static bool prepare_list_state(attack_scene *s)
{
    return prepare_list(s, PARAMD__LIST_KIND__LIST_STATE);
}

/* A pattern as long as a header allows. */
static bool prepare_list_long(attack_scene *s)
{
    static char text[60001];
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;

    memset(text, 'b', sizeof text - 1);
    memcpy(text, "*[", 2);
    memcpy(text + sizeof text - 3, "]x", 2);
    request.what = PARAMD__LIST_KIND__LIST_ROOTS;
    request.job = (char *)s->job;
    request.param = text;
    attack_add(s, PD_LIST, &request.base, 0);
    return attack_make_job(s, 1) && flood_of_operators(s, ATTACK_FOES);
}

static void add_sets(attack_scene *s)
{
    Paramd__SetRequest request = PARAMD__SET_REQUEST__INIT;
    Paramd__Option lr = PARAMD__OPTION__INIT, decay = PARAMD__OPTION__INIT, *list[] = { &lr, &decay };
    const char *const *pattern = attack_patterns();

    lr.name = (char *)"lr";
    lr.value = (char *)"0.1";
    decay.name = (char *)"weight_decay";
    decay.value = (char *)"0.01";
    request.job = (char *)s->job;
    request.options = list;
    request.n_options = 2;
    for (uint64_t i = 0; i < STEPS_SET; i++, pattern++) {
        if (*pattern == NULL) pattern = attack_patterns();
        request.pattern = (char *)*pattern;
        request.from_step = 1 + i % 8;
        attack_add(s, PD_SET, &request.base, 0);
    }
}

static bool prepare_sets(attack_scene *s)
{
    add_sets(s);
    return attack_make_job(s, 1) && flood_of_operators(s, SETTERS);
}

/* The settings that Set has made, listed by all patterns. */
static bool prepare_list_settings(attack_scene *s)
{
    Paramd__SetRequest request = PARAMD__SET_REQUEST__INIT;
    Paramd__Option lr = PARAMD__OPTION__INIT, *list[] = { &lr };

    lr.name = (char *)"lr";
    lr.value = (char *)"0.2";
    request.job = (char *)s->job;
    request.pattern = (char *)"*";
    request.options = list;
    request.n_options = 1;
    if (!prepare_list(s, PARAMD__LIST_KIND__LIST_SETTINGS)) return false;
    if (s->owner == s->side) (void)foe_ask(&s->foes[0], PD_SET, &request.base, 0);
    return true;
}

/* An import of a counter of each parameter, which is committed. */
static bool prepare_import(attack_scene *s)
{
    Paramd__ImportRequest request = PARAMD__IMPORT_REQUEST__INIT;
    char name[FOE_NAME_BYTES + 1];

    if (!attack_make_job(s, 1)) return false;
    request.job = (char *)s->job;
    request.act = 1;
    attack_add(s, PD_IMPORT, &request.base, 0);
    request.act = 3;
    request.param = name;
    request.value = 1;
    for (uint32_t i = 0; i < s->params; i++) {
        foe_name(name, i);
        attack_add(s, PD_IMPORT, &request.base, 0);
    }
    request.act = 4;
    request.param = (char *)"";
    request.partial = true;
    attack_add(s, PD_IMPORT, &request.base, 0);
    s->most = IMPORTS;
    return attack_operators(s, 1);
}

/* Resets of the state of all parameters, by hostile patterns. */
static bool prepare_resets(attack_scene *s)
{
    Paramd__ImportRequest request = PARAMD__IMPORT_REQUEST__INIT;

    request.job = (char *)s->job;
    request.act = 5;
    for (const char *const *pattern = attack_patterns(); *pattern != NULL; pattern++) {
        request.param = (char *)*pattern;
        attack_add(s, PD_IMPORT, &request.base, 0);
    }
    return attack_make_job(s, 1) && flood_of_operators(s, SETTERS);
}

/* Begins an import and hangs up. */
static void run_begins(attack_scene *s, unsigned method)
{
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;
    Paramd__ExportRequest export = PARAMD__EXPORT_REQUEST__INIT;

    import.job = export.job = (char *)s->job;
    import.act = export.act = 1;
    while (!foe_over(s->side)) {
        foe f;
        if (foe_join(&f, s->side, &(foe_hello){ .job = "" }))
            (void)foe_ask(&f, method, method == PD_IMPORT ? &import.base : &export.base, 0);
        foe_close(&f);
    }
}

static void run_import_begins(attack_scene *s)
{
    run_begins(s, PD_IMPORT);
}

static void run_export_begins(attack_scene *s)
{
    run_begins(s, PD_EXPORT);
}

static bool prepare_begins(attack_scene *s)
{
    return attack_make_job(s, 1);
}

/* Exports of weights: a begin, pieces, and an end. Several operators want one at a time. */
static bool prepare_export(attack_scene *s)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;
    char name[FOE_NAME_BYTES + 1];

    if (!attack_make_job(s, 1)) return false;
    request.job = (char *)s->job;
    request.act = 1;
    attack_add(s, PD_EXPORT, &request.base, 0);
    request.act = 2;
    request.param = name;
    request.number = request.block = -1;
    request.count = 1;
    for (uint32_t i = 0; i < EXPORTS; i++) {
        foe_name(name, s->params - 1 - i % s->params);
        attack_add(s, PD_EXPORT, &request.base, 0);
    }
    request.act = 4;
    request.param = (char *)"";
    attack_add(s, PD_EXPORT, &request.base, 0);
    s->most = 1;
    return attack_operators(s, ATTACK_FOES);
}

/* Exports of the weights of a job that takes steps: in whole, and begun and given up. */
static bool prepare_export_running(attack_scene *s)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;

    request.job = (char *)s->running;
    request.act = 1;
    attack_add(s, PD_EXPORT, &request.base, 0);
    request.act = 2;
    request.param = (char *)"w";
    request.number = request.block = -1;
    request.count = PIECE;
    for (uint32_t i = 0; i < EXPORTS; i++) attack_add(s, PD_EXPORT, &request.base, 0);
    s->most = 1;
    return attack_operators(s, ATTACK_FOES);
}

static void run_running_begins(attack_scene *s)
{
    s->job = s->running;
    run_begins(s, PD_EXPORT);
}

/* Creates the job, declares its parameters, and drops it, again and again. */
static void run_drops(attack_scene *s)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    foe operator;

    request.job = (char *)s->job;
    if (!foe_join(&operator, s->side, &(foe_hello){ .job = "" })) return;
    for (uint64_t i = 0; !foe_over(s->side); i++) {
        foe f;
        (void)foe_begin(&f, s->side, &(foe_hello){ .job = s->job, .world = 1, .nonce = i + 1 }, &s->set);
        (void)foe_ask(&operator, PD_DROP, &request.base, 0);
        foe_close(&f);
    }
    foe_close(&operator);
}

static bool prepare_drops(attack_scene *s)
{
    foe_set_make(&s->set, s->params, 1);
    return true;
}

/* Kicks of ranks that nobody has, of the attackers' own job and of one that is missing. */
static bool prepare_kicks(attack_scene *s)
{
    Paramd__KickRequest request = PARAMD__KICK_REQUEST__INIT;

    request.job = (char *)s->job;
    request.rank = UINT32_MAX;
    attack_add(s, PD_KICK, &request.base, 0);
    request.rank = 1;
    request.job = (char *)"missing";
    attack_add(s, PD_KICK, &request.base, 0);
    return flood_of_operators(s, ATTACK_FOES);
}

/* Commands that need another role. */
static bool prepare_refused(attack_scene *s, unsigned method)
{
    Paramd__DrainRequest drain = PARAMD__DRAIN_REQUEST__INIT;
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    attack_add(s, method, method == PD_DRAIN ? &drain.base : &empty.base, 0);
    return flood_of_operators(s, ATTACK_FOES);
}

static bool prepare_drain(attack_scene *s)
{
    return prepare_refused(s, PD_DRAIN);
}

static bool prepare_shutdown(attack_scene *s)
{
    return prepare_refused(s, PD_SHUTDOWN);
}

const attack attacks_of_operators[] = {
    { "status", PD_STATUS, ATTACK_READER, prepare_status, attack_flood },
    { "list_jobs", PD_LIST, ATTACK_READER, prepare_list_jobs, attack_flood },
    { "list_params", PD_LIST, ATTACK_READER, prepare_list_params, attack_flood },
    { "list_missing", PD_LIST, ATTACK_READER, prepare_list_missing, attack_flood },
    { "list_workers", PD_LIST, ATTACK_READER, prepare_list_workers, attack_flood },
    { "list_roots", PD_LIST, ATTACK_READER, prepare_list_roots, attack_flood },
    { "list_settings", PD_LIST, ATTACK_READER, prepare_list_settings, attack_flood },
    { "list_state", PD_LIST, ATTACK_READER, prepare_list_state, attack_flood },
    { "list_long", PD_LIST, ATTACK_READER, prepare_list_long, attack_flood },
    { "optimizers", PD_OPTIMIZERS, ATTACK_READER, prepare_optimizers, attack_flood },
    { "shards", PD_SHARDS, ATTACK_READER, prepare_shards, attack_flood },
    { "drop", PD_DROP, ATTACK_ADMIN, prepare_drops, run_drops },
    { "kick", PD_KICK, ATTACK_ADMIN, prepare_kicks, attack_flood },
    { "drain", PD_DRAIN, ATTACK_READER, prepare_drain, attack_flood },
    { "shutdown", PD_SHUTDOWN, ATTACK_READER, prepare_shutdown, attack_flood },
    { "set", PD_SET, ATTACK_ADMIN, prepare_sets, attack_flood },
    { "import", PD_IMPORT, ATTACK_ADMIN, prepare_import, attack_flood },
    { "import_resets", PD_IMPORT, ATTACK_ADMIN, prepare_resets, attack_flood },
    { "import_begins", PD_IMPORT, ATTACK_ADMIN, prepare_begins, run_import_begins },
    { "export", PD_EXPORT, ATTACK_READER, prepare_export, attack_flood },
    { "export_begins", PD_EXPORT, ATTACK_READER, prepare_begins, run_export_begins },
    { "export_running", PD_EXPORT, ATTACK_READER_OF_OTHERS, prepare_export_running, attack_flood },
    { "export_running_begins", PD_EXPORT, ATTACK_READER_OF_OTHERS, NULL, run_running_begins },
    { NULL, 0, ATTACK_ADMIN, NULL, NULL },
};
