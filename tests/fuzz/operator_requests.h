/* operator_requests.h - requests of operators, notes, and requests without choices of their own. fuzz_conversation.c
 * includes this file after the definitions that they use. */
/* Sends one Import request for optimizer state of a parameter: up to 63 elements, maybe with invalid fields. */
static void say_import(peer *p)
{
    static const char *const names[] = { "w", "b", "bias", "nobody" }, *const slots[] = { "momentum_buffer", "exp_avg",
                                                                                          "", "momentum_buffer" };
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;
    uint8_t how = choice(), what = choice(), rows = choice(), columns = choice(), first = choice(), count = choice();
    uint64_t shape[2] = { rows == 255 ? UINT64_MAX : rows % 16, columns % 32 };

    import.job = (char *)job_names[how & 3];
    import.act = how >> 2 & 7;
    import.wide = (how & 0x20) != 0;
    import.partial = (how & 0x40) != 0;
    import.param = (char *)names[what & 3];
    import.slot = (char *)slots[what >> 2 & 3];
    import.number = (what & 0x10) != 0 ? 0 : -1;
    import.block = (what & 0x20) != 0 ? 0 : -1;
    import.shape = shape;
    import.n_shape = 2;
    import.first = (what & 0x40) != 0 ? UINT64_MAX - first : first;
    import.count = count % 64;
    import.value = (what & 0x80) != 0 ? UINT64_MAX : first;
    send_frame(p, PD_IMPORT, &import.base, import.act == 2 ? import.count * (import.wide ? 8 : 4) + (count >> 7) : 0,
               first);
}

/* Sends one Export request for weights or optimizer state of a parameter: up to 63 elements, maybe with invalid
 * fields. */
static void say_export(peer *p)
{
    static const char *const names[] = { "w", "b", "bias", "nobody" }, *const slots[] = { "", "momentum_buffer",
                                                                                          "pending_root", "" };
    Paramd__ExportRequest export = PARAMD__EXPORT_REQUEST__INIT;
    uint8_t how = choice(), what = choice(), first = choice(), count = choice();

    export.job = (char *)job_names[how & 3];
    export.act = how >> 2 & 7;
    export.state = (how & 0x20) != 0;
    export.wait_ms = (how & 0x40) != 0 ? 1000u * count : 0;
    export.param = (char *)names[what & 3];
    export.slot = (char *)slots[what >> 2 & 3];
    export.number = (what & 0x10) != 0 ? 0 : -1;
    export.block = (what & 0x20) != 0 ? 0 : -1;
    export.first = (what & 0x40) != 0 ? UINT64_MAX - first : first;
    export.count = (what & 0x80) != 0 ? UINT64_MAX : count % 64;
    send_frame(p, PD_EXPORT, &export.base, 0, 0);
}

static void say_note(peer *p)
{
    Paramd__NoteRequest note = PARAMD__NOTE_REQUEST__INIT;
    uint8_t step = choice(), size = choice(), fill = choice();

    note.step = step == 255 ? UINT64_MAX : step;
    send_frame(p, PD_NOTE, &note.base, 16u * size, fill);
}

/* Sends one Checkpoint request. Operators must name a job, workers must not. */
static void say_checkpoint(peer *p)
{
    Paramd__CheckpointRequest checkpoint = PARAMD__CHECKPOINT_REQUEST__INIT;
    uint8_t how = choice();

    checkpoint.job = (char *)job_names[how & 3];
    checkpoint.step = how == 255 ? UINT64_MAX : how >> 2 & 7;
    checkpoint.wait_ms = (how & 0x20) != 0 ? 1000 : (how & 0x40) != 0 ? 600001 : 0;
    send_frame(p, PD_CHECKPOINT, &checkpoint.base, 0, 0);
}

static void say_to_operators(peer *p, unsigned method)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    Paramd__BarrierRequest barrier = PARAMD__BARRIER_REQUEST__INIT;
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__OptimizersRequest optimizers = PARAMD__OPTIMIZERS_REQUEST__INIT;
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;
    Paramd__DrainRequest drain = PARAMD__DRAIN_REQUEST__INIT;
    Paramd__KickRequest kick = PARAMD__KICK_REQUEST__INIT;
    uint8_t how = method == PD_BARRIER || method == PD_LIST || method == PD_OPTIMIZERS || method == PD_DROP ||
                          method == PD_DRAIN || method == PD_KICK
                      ? choice()
                      : 0;

    barrier.sequence = how;
    list.what = how & 7;
    list.job = drop.job = kick.job = (char *)job_names[how >> 3 & 3];
    list.start = how >> 5;
    drain.timeout_ms = how;
    kick.rank = how & 7;
    optimizers.start = how & 7;
    optimizers.name = how >> 3 == 0 ? (char *)"" : how >> 3 == 1 ? (char *)"sgd" : (char *)"?";
    send_frame(p, method,
               method == PD_BARRIER      ? &barrier.base
               : method == PD_LIST       ? &list.base
               : method == PD_DROP       ? &drop.base
               : method == PD_KICK       ? &kick.base
               : method == PD_OPTIMIZERS ? &optimizers.base
               : method == PD_DRAIN      ? &drain.base
                                         : &empty.base,
               0, 0);
}

static void say_set(peer *p)
{
    static const char *const names[] = { "lr", "momentum", "nesterov", "", "lrx", "weight_decay", "dampening", "lr" };
    static const char *const values[] = { "0.5", "",    "table(1,2,0.5)", "piecewise(0,3:0.5)", "-1",
                                          "nan", "yes", "linear_warmup(" };
    static const char *const patterns[] = { "*", "w", "[b-w]*", "" };
    Paramd__SetRequest set = PARAMD__SET_REQUEST__INIT;
    Paramd__Option at[3], *list[3];
    uint8_t how = choice();

    set.job = (char *)job_names[how & 3];
    set.pattern = (char *)patterns[how >> 2 & 3];
    set.n_options = how >> 4 & 3;
    set.from_step = how >> 6;
    for (size_t i = 0; i < set.n_options; i++) {
        uint8_t which = choice();
        paramd__option__init(&at[i]);
        at[i].name = (char *)names[which & 7];
        at[i].value = (char *)values[which >> 3 & 7];
        list[i] = &at[i];
    }
    set.options = list;
    send_frame(p, PD_SET, &set.base, 0, 0);
}
