/* pki.h - a public key infrastructure for tests: authorities, and the certificates that they sign, as files. */
#ifndef PKI_H
#define PKI_H

typedef struct pki_authority pki_authority;

/* Makes an authority, and writes its certificate to `path` (PEM) unless that is NULL. */
pki_authority *pki_new(const char *name, const char *path);
void pki_free(pki_authority *authority);
/* Writes a new certificate and its key. `names`: the subjectAltName in OpenSSL's form, such as
 * "DNS:localhost,IP:127.0.0.1"; NULL: none. It is valid until `days` days from now; less than 0: it has expired. */
void pki_issue(const pki_authority *authority, const char *names, int days, const char *certificate, const char *key);
/* Does the same with another common name. */
void pki_issue_common(const pki_authority *authority, const char *common, const char *names, int days,
                      const char *certificate, const char *key);
/* Writes the authority's list of revoked certificates. It has the certificate in the file `revoked`; NULL: it is empty.
 * It is valid until `days` days from now; less than 0: it has expired. */
void pki_revoke(const pki_authority *authority, const char *revoked, int days, const char *path);
/* Writes a text to a file with this mode. */
void pki_write(const char *path, const char *text, unsigned mode);
/* Writes a file of tokens with mode 600: one line, or two unless `second` is NULL. */
void pki_write_tokens(const char *path, const char *first, const char *second);

#endif
