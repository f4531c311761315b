/* Loads any bytes as a file of a checkpoint, or as a segment of a WAL (wal_segment.h). The manifest's sizes and hashes
 * are made to fit, so that the bytes get past them. The checkpoint is refused with a reason, or it was read and can be
 * written again. */
#include <string.h>

#include "checkpoint_sample.h"
#include "wal_segment.h"
#include "mem_disk.h"
#include "seed.h"

#define ROOT "/state"
#define JOB_DIR ROOT "/runs%2Fgpt%20%231-0123456789abcdef"
#define DIR JOB_DIR "/step-00000000000000000004"

/* An input: which file it is (one byte; 3 is the manifest, 4 a segment of a WAL), and the bytes of the file. */
enum { MANIFEST = PD_KEEP_FILES, SEGMENT };

static const char *const files[] = { DIR "/weights.safetensors", DIR "/state.bin", DIR "/notes.bin",
                                     DIR "/manifest.json" };

/* Returns a disk that has a whole checkpoint. */
static mem_disk *with_checkpoint(void)
{
    mem_disk *memory = mem_disk_new();
    pd_disk disk = mem_disk_table(memory);
    pd_checkpoint_image *kept = sample_checkpoint(4, 1);

    MUST(disk.make_dir(disk.arg, ROOT) == 0);
    MUST(pd_checkpoint_write(&disk, ROOT, kept, &sample_about, NULL) == PD_OK);
    pd_checkpoint_image_free(kept);
    return memory;
}

static void make_seeds(const char *folder)
{
    mem_disk *memory = with_checkpoint();
    char name[16];

    for (int i = 0; i <= MANIFEST; i++) {
        size_t bytes;
        const uint8_t *at = mem_disk_file(memory, files[i], &bytes);
        uint8_t *seed = malloc(bytes + 1);
        MUST(seed != NULL);
        seed[0] = (uint8_t)i;
        memcpy(seed + 1, at, bytes);
        snprintf(name, sizeof name, "file_%d", i);
        write_seed(folder, name, seed, bytes + 1);
        free(seed);
    }
    mem_disk_free(memory);
    log_segment_seed(folder, SEGMENT);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

static void replace(mem_disk *memory, const char *path, const void *data, size_t bytes)
{
    size_t room;

    mem_disk_resize(memory, path, bytes);
    if (bytes > 0) memcpy(mem_disk_file(memory, path, &room), data, bytes);
}

/* Gives the hash of the index of state.bin its true value. */
static void mend_index(uint8_t *at, size_t bytes)
{
    uint64_t n, hash;

    if (bytes < 40) return;
    memcpy(&n, at + bytes - 24, sizeof n);
    if (n > bytes - 40) return;
    hash = XXH3_64bits(at + bytes - 24 - n, (size_t)n);
    memcpy(at + bytes - 16, &hash, sizeof hash);
}

/* Makes a manifest that agrees with the bytes of a file. */
static void mend_manifest(mem_disk *memory, int which, const uint8_t *data, size_t size)
{
    pd_manifest manifest;
    size_t bytes;
    char *text = (char *)mem_disk_file(memory, files[MANIFEST], &bytes);

    MUST(pd_manifest_parse(&manifest, text, bytes, NULL) == PD_OK);
    manifest.file[which] = (pd_file_sum){ .bytes = size, .xxh3 = XXH3_64bits(data, size) };
    MUST(pd_manifest_text(&text, &bytes, &manifest, NULL) == PD_OK);
    replace(memory, files[MANIFEST], text, bytes);
    free(text);
}

/* Gives the manifest its true hash, which stands before its last 4 bytes. */
static void mend_text(uint8_t *text, size_t bytes)
{
    const size_t tail = strlen(",\n  \"xxh3\": \"0123456789abcdef\"\n}\n");
    char end[64];

    if (bytes < tail) return;
    snprintf(end, sizeof end, ",\n  \"xxh3\": \"%016llx\"\n}\n", (unsigned long long)XXH3_64bits(text, bytes - tail));
    memcpy(text + bytes - tail, end, tail);
}

/* Writes a checkpoint that was read. Its state and notes have as many bytes as before. */
static void write_again(const pd_disk *disk, mem_disk *memory, pd_checkpoint_image *kept, int which, size_t size)
{
    size_t bytes;

    MUST(kept->step == 4 && strcmp(kept->job, SAMPLE_JOB) == 0);
    MUST(pd_checkpoint_write(disk, ROOT, kept, &sample_about, NULL) == PD_OK);
    MUST(mem_disk_file(memory, files[which], &bytes) != NULL);
    MUST((which != PD_KEEP_STATE && which != PD_KEEP_NOTES) || bytes == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mem_disk *memory;
    pd_disk disk;
    pd_manifest manifest;
    pd_checkpoint_image *kept;
    pd_error err = { 0 };
    uint8_t *copy;
    int which;

    if (size == 0) return 0;
    which = data[0] % (SEGMENT + 1);
    if (which == SEGMENT) {
        log_segment_fuzz(data + 1, size - 1);
        return 0;
    }
    if ((copy = malloc(size)) == NULL) return 0;
    memcpy(copy, data + 1, --size);
    memory = with_checkpoint();
    disk = mem_disk_table(memory);
    if (which == PD_KEEP_STATE) mend_index(copy, size);
    if (which == MANIFEST) mend_text(copy, size);
    replace(memory, files[which], copy, size);
    if (which != MANIFEST) mend_manifest(memory, which, copy, size);
    if (pd_checkpoint_load(&disk, DIR, &kept, &manifest, &err) == PD_OK) {
        write_again(&disk, memory, kept, which, size);
        pd_checkpoint_image_free(kept);
    } else {
        MUST(err.text[0] != '\0');
    }
    mem_disk_free(memory);
    free(copy);
    return 0;
}
