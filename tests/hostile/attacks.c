/* attacks.c - the table of attacks, and what they share. */
#include "attacks.h"

static const attack *const tables[] = { attacks_of_workers, attacks_of_operators, attacks_of_shards,
                                        attacks_of_strangers };

enum { TABLES = sizeof tables / sizeof *tables };

const attack *attacks_at(size_t i)
{
    for (size_t t = 0; t < TABLES; t++)
        for (const attack *at = tables[t]; at->name != NULL; at++)
            if (i-- == 0) return at;
    return NULL;
}

size_t attacks_count(void)
{
    size_t n = 0;

    while (attacks_at(n) != NULL) n++;
    return n;
}

const attack *attacks_find(const char *name)
{
    for (size_t i = 0; i < attacks_count(); i++)
        if (strcmp(attacks_at(i)->name, name) == 0) return attacks_at(i);
    return NULL;
}

void attack_clear(attack_scene *scene)
{
    for (size_t i = 0; i < scene->n; i++) foe_close(&scene->foes[i]);
    if (scene->host.side != NULL) foe_close(&scene->host);
    if (scene->host2.side != NULL) foe_close(&scene->host2);
    foe_frames_free(scene->frames, scene->n_frames);
    foe_set_free(&scene->set);
    scene->frames = NULL;
    scene->n = scene->n_frames = scene->most = 0;
}

void attack_flood(attack_scene *scene)
{
    if (scene->n > 0) foe_flood(scene->foes, scene->n, scene->frames, scene->n_frames, scene->most);
}

static bool join_as(attack_scene *scene, foe *f, uint32_t rank, uint32_t world)
{
    const foe_hello hello = {
        .job = scene->job, .rank = rank, .world = world, .nonce = rank + 1, .options = scene->options
    };

    if (scene->set.n == 0) foe_set_make(&scene->set, scene->params, 1);
    return foe_begin(f, scene->owner, &hello, &scene->set);
}

bool attack_make_job(attack_scene *scene, uint32_t world)
{
    return join_as(scene, &scene->host, 0, world);
}

bool attack_make_impatient_job(attack_scene *scene, uint32_t world)
{
    static const char *const times[] = { "10ms", "100ms", "1s", "10s" };

    scene->options[0] = "step_timeout";
    for (size_t i = 0; i < sizeof times / sizeof *times && !foe_over(scene->side); i++) {
        scene->options[1] = times[i];
        if (attack_make_job(scene, world)) return join_as(scene, &scene->host2, 1, world);
    }
    return false;
}

bool attack_operators(attack_scene *scene, size_t n)
{
    for (size_t i = 0; i < n; i++, scene->n++)
        if (!foe_join(&scene->foes[i], scene->side, &(foe_hello){ .job = "" })) return false;
    return true;
}

void attack_add(attack_scene *scene, unsigned method, const ProtobufCMessage *message, size_t payload_bytes)
{
    scene->frames = realloc(scene->frames, (scene->n_frames + 1) * sizeof *scene->frames);
    if (scene->frames == NULL) abort();
    scene->frames[scene->n_frames++] = foe_pack(method, message, payload_bytes);
}

const char *const *attack_patterns(void)
{
    enum { MOST = 256 };
    static char stars[MOST + 1], questions[MOST + 1], set[MOST + 1], sets[MOST + 1], open[MOST + 1], near[MOST + 1];
    static const char *const all[] = { stars, questions, set, sets, open, near, "*", NULL };

    for (size_t i = 0; i + 1 < MOST; i += 2) memcpy(stars + i, "*a", 2), memcpy(questions + i, "*?", 2);
    stars[MOST - 1] = questions[MOST - 1] = 'b';
    snprintf(set, sizeof set, "*[");
    memset(set + 2, 'b', MOST - 4);
    memcpy(set + MOST - 2, "]x", 2);
    for (size_t i = 0; i + 7 < MOST; i += 8) memcpy(sets + i, "*[!bcde]", 8);
    sets[MOST - 1] = 'b';
    memset(open, '[', MOST - 1), open[0] = '*';
    memset(near, 'a', MOST - 2), near[0] = '*', near[MOST - 2] = 'b';
    return all;
}
