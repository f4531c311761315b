/* tls_scene.h - a daemon that listens on TLS as well, and a folder with the keys of both sides. */
#ifndef TLS_SCENE_H
#define TLS_SCENE_H

#include "daemon_process.h"
#include "pki.h"
#include "token.h"

typedef struct tls_scene {
    char folder[64];
    pki_authority *authority;
    /* paths of files in the folder; server_..., ca and tokens are the daemon's, the others a worker's */
    char ca[96], server_pem[96], server_key[96], tokens[96], token[96], client_pem[96], client_key[96];
    char line[PD_TOKEN_LINE]; /* the token in `tokens` and `token`, whose id is alice */
    test_daemon *daemon;      /* listens on TCP without TLS, too: daemon->url */
    int port;                 /* of tls:// */
    char url[64];             /* "tls://127.0.0.1:PORT" */
} tls_scene;

/* Makes the folder and the keys: a certificate for 127.0.0.1, one for the client worker-1, and a token. */
tls_scene *tls_scene_new(void);
/* Starts the daemon with certificate, authority and tokens, and these flags besides (NULL at the end; or NULL). */
void tls_scene_start(tls_scene *scene, const char *const *flags);
/* Stops the daemon, if it was started, and removes the folder. Returns the daemon's exit status. */
int tls_scene_end(tls_scene *scene);
/* Sends SIGHUP, again after 5 s, and waits until the daemon has read its files for the `n`-th time. */
void tls_scene_reload(const tls_scene *scene, int n);

#endif
