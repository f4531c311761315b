/* Tests the texts of identities, to which roles are given. */
#include "test.h"
#include "transport.h"

static void expect(pd_identity_kind kind, const char *name, pd_identity_kind found, const char *text)
{
    pd_identity identity;

    memset(&identity, 'x', sizeof identity);
    pd_identity_set(&identity, kind, name);
    assert_int_equal(identity.kind, found);
    assert_string_equal(identity.text, text);
}

TEST(an_identity_is_its_kind_and_its_name)
{
    expect(PD_IDENTITY_USER, "1000", PD_IDENTITY_USER, "user:1000");
    expect(PD_IDENTITY_TOKEN, "alice", PD_IDENTITY_TOKEN, "token:alice");
    expect(PD_IDENTITY_CERTIFICATE, "a.example.org", PD_IDENTITY_CERTIFICATE, "certificate:a.example.org");
    expect(PD_IDENTITY_NONE, "alice", PD_IDENTITY_NONE, "anyone");
}

HOLDS(a_name_that_is_empty_proves_nothing, expect(PD_IDENTITY_CERTIFICATE, "", PD_IDENTITY_NONE, "anyone"));

HOLDS(a_name_that_moves_the_cursor_proves_nothing,
      expect(PD_IDENTITY_CERTIFICATE, "a\x1b[2Jb", PD_IDENTITY_NONE, "anyone"));

/* Cut off, a long name would be the identity of another peer. */
TEST(a_name_is_never_cut_off)
{
    char name[300];
    pd_identity longest;

    memset(name, 'a', sizeof name);
    name[255 - strlen("token:")] = '\0';
    pd_identity_set(&longest, PD_IDENTITY_TOKEN, name);
    assert_int_equal(longest.kind, PD_IDENTITY_TOKEN);
    assert_int_equal(strlen(longest.text), 255);
    name[255 - strlen("token:")] = 'a';
    name[256 - strlen("token:")] = '\0';
    expect(PD_IDENTITY_TOKEN, name, PD_IDENTITY_NONE, "anyone");
}
