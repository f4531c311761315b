/* wal_segment.h - reads any bytes as a segment of a WAL, for a fuzzer. Their hashes are made to fit, as far as that is
 * possible, so that the bytes get past them. The log ends before the first entry that does not follow, or all of an
 * entry can be read. */
#ifndef LOG_SEGMENT_H
#define LOG_SEGMENT_H

#include <endian.h>
#include <string.h>

#include <xxhash.h>

#include "wal_format.h"
#include "wal_sample.h"
#include "seed.h"

#define LOG_DIR LOG_JOB_DIR "/log"
#define LOG_SEGMENT_PATH LOG_DIR "/segment-00000000000000000001"

/* Room for entries that tell of more bytes than there are. */
enum { LOG_LEAST = 2 * PD_DISK_BLOCK, LOG_MOST = 64 * PD_DISK_BLOCK };

static inline uint64_t number_at(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static inline void put_number(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

/* Gives the header of a segment the magic bytes, number and creator that it must have, and its true hash. Returns that
 * hash. */
static inline uint64_t mend_segment(uint8_t *at)
{
    pd_wal_segment segment = { .number = 1, .creator = LOG_CREATOR, .first = 1, .job = LOG_JOB };

    segment.previous = number_at(at + 56);
    segment.durable = number_at(at + 64);
    pd_wal_segment_write(&segment, at);
    return segment.link;
}

/* Gives an entry the numbers without which it would not be looked at, and its true hashes. Returns its length; 0: it
 * tells of more bytes than there are. */
static inline uint64_t mend_entry(uint8_t *at, size_t bytes, uint64_t step, uint64_t *link)
{
    pd_wal_header header = { .segment = 1, .creator = LOG_CREATOR, .step = step, .previous = *link };
    uint32_t parts;

    memcpy(&parts, at + 4, sizeof parts);
    header.n_parts = le32toh(parts) % 40;
    header.base = number_at(at + 24) % step;
    header.durable = number_at(at + 40);
    header.head_bytes = number_at(at + 48);
    header.data_bytes = number_at(at + 56);
    pd_wal_header_write(&header, at);
    if (!pd_wal_header_read(&header, at) || pd_wal_header_bytes(&header) > bytes) return 0;
    *link = XXH3_64bits(at, (size_t)pd_wal_header_link(&header));
    put_number(at + pd_wal_header_link(&header), *link);
    return pd_wal_header_bytes(&header);
}

static inline void mend_log(uint8_t *at, size_t bytes)
{
    uint64_t link = mend_segment(at), offset = PD_DISK_BLOCK, n = 1;

    for (uint64_t step = 1; n > 0 && offset + PD_DISK_BLOCK <= bytes; step++, offset += n)
        n = mend_entry(at + offset, bytes - (size_t)offset, step, &link);
}

/* Reads all that an entry has. */
static inline int read_entry(void *arg, const pd_wal_record *record, pd_error *err)
{
    uint64_t *step = arg;
    double sum = 0;

    (void)err;
    MUST(record->step == ++*step && record->base < record->step && strcmp(record->job, LOG_JOB) == 0);
    for (size_t i = 0; i < record->head_bytes; i++) sum += record->head[i];
    for (uint32_t p = 0; p < record->n_parts; p++)
        for (int64_t i = 0; i < record->parts[p].elements; i++) sum += record->parts[p].at[i] > 0;
    MUST(sum >= 0);
    return PD_OK;
}

/* Reads what a record of decisions has. It begins with any number. */
static inline int read_record(void *arg, const pd_wal_record *record, pd_error *err)
{
    uint64_t *number = arg;

    if (*number == 0) *number = record->step - 1;
    return read_entry(arg, record, err);
}

/* Takes the same bytes for a segment of the stream of decisions. */
static inline void control_segment_fuzz(log_course *c, const uint8_t *at, size_t bytes)
{
    static const char path[] = LOG_JOB_DIR "/control/segment-00000000000000000001";
    pd_wal_about about;
    pd_error err = { 0 };
    uint64_t number = 0;
    uint8_t *to;
    int file;

    MUST(c->disk.make_dir(c->disk.arg, LOG_JOB_DIR "/control") == 0 &&
         c->disk.create(c->disk.arg, path, 0, &file) == 0);
    MUST(c->disk.close(c->disk.arg, file) == 0);
    mem_disk_resize(c->memory, path, bytes);
    to = mem_disk_file(c->memory, path, &bytes);
    memcpy(to, at, bytes);
    MUST(pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_DECISIONS, 0 }, read_record, &number,
                     &about, &err) == PD_OK);
    MUST(about.entries == 0 || about.last == number);
    MUST(pd_wal_truncate(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_DECISIONS, 0 }, about.last,
                         &err) == PD_OK);
}

/* Reads an input of the fuzzer: the bytes of a segment. */
static inline void log_segment_fuzz(const uint8_t *data, size_t size)
{
    log_course c;
    pd_wal_about about;
    pd_error err = { 0 };
    uint64_t step = 0;
    size_t bytes = size < LOG_LEAST ? LOG_LEAST : size;
    uint8_t *at;
    int file;

    if (size > LOG_MOST) return;
    course_new(&c);
    MUST(c.disk.make_dir(c.disk.arg, LOG_DIR) == 0 && c.disk.create(c.disk.arg, LOG_SEGMENT_PATH, 0, &file) == 0);
    MUST(c.disk.close(c.disk.arg, file) == 0);
    mem_disk_resize(c.memory, LOG_SEGMENT_PATH, bytes);
    at = mem_disk_file(c.memory, LOG_SEGMENT_PATH, &bytes);
    memcpy(at, data, size);
    mend_log(at, bytes);
    control_segment_fuzz(&c, at, bytes);
    MUST(pd_wal_read(&(pd_wal_source){ &c.disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, read_entry, &step, &about,
                     &err) == PD_OK);
    MUST(about.last == step && about.entries == step);
    MUST(pd_wal_truncate(&(pd_wal_source){ &c.disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, step, &err) == PD_OK);
    MUST(pd_wal_survey(&(pd_wal_source){ &c.disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, &about, &err) == PD_OK);
    MUST(about.last == step);
    course_free(&c);
}

/* Writes a seed: the byte that says that it is a segment, and a segment of three entries. */
static inline void log_segment_seed(const char *folder, uint8_t which)
{
    log_course c;
    size_t bytes;
    const uint8_t *at;
    uint8_t *seed;

    course_new(&c);
    course_steps(&c, 3);
    at = mem_disk_file(c.memory, LOG_SEGMENT_PATH, &bytes);
    seed = malloc(bytes + 1);
    MUST(seed != NULL);
    seed[0] = which;
    memcpy(seed + 1, at, bytes);
    write_seed(folder, "segment", seed, bytes + 1);
    free(seed);
    course_free(&c);
}

#endif
