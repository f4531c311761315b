/* small_daemon.c - the settings of a daemon that a test runs in its own process. */
#include "small_daemon.h"

static void drop_line(const pd_log_entry *entry)
{
    (void)entry;
}

pd_daemon_config small_daemon(void)
{
    return (pd_daemon_config){ .listen = "",
                               .max_connections = 4,
                               .times.handshake_ms = 60000,
                               .times.heartbeat_ms = 5000,
                               .times.silence_ms = 60000,
                               .times.read_ms = 60000,
                               .times.write_ms = 60000,
                               .times.drain_ms = 1000,
                               .ingest_bytes = 65536,
                               .chunk_elements = 1024,
                               .max_payload = 4096,
                               .max_pieces = 16,
                               .max_params = 16,
                               .max_header = 4096,
                               .hello_bytes = 1024,
                               .blas_core = "none",
                               .hooks.log = drop_line };
}
