/* Tests mail between two threads: order, wake-ups and deadlines. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "test.h"
#include "mailbox.h"

WITH_THREADS();

typedef struct letter {
    pd_mail mail;
    int sender, number;
} letter;

enum { SENDERS = 4, LETTERS = 2000 };

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void post(pd_mailbox *box, letter *l)
{
    assert_int_equal(pd_mailbox_post(box, &l->mail, &l->mail), PD_OK);
}

TEST(gives_mail_in_the_order_it_came)
{
    pd_mailbox *box = pd_mailbox_new(NULL, NULL);
    letter at[3] = { { .number = 0 }, { .number = 1 }, { .number = 2 } };
    int expected = 0;

    at[1].mail.next = &at[2].mail;
    post(box, &at[0]);
    assert_int_equal(pd_mailbox_post(box, &at[1].mail, &at[2].mail), PD_OK); /* posts a chain of two letters at once */
    for (pd_mail *mail = pd_mailbox_take(box); mail != NULL; mail = mail->next)
        assert_int_equal(((letter *)mail)->number, expected++);
    assert_int_equal(expected, 3);
    assert_null(pd_mailbox_take(box));
    pd_mailbox_free(box);
}

static void count_wake(void *arg)
{
    ++*(int *)arg;
}

TEST(wakes_its_owner_once_for_what_it_finds_together)
{
    int wakes = 0;
    pd_mailbox *box = pd_mailbox_new(count_wake, &wakes);
    letter at[3] = { { .number = 0 } };

    post(box, &at[0]);
    post(box, &at[1]);
    assert_int_equal(wakes, 1);
    pd_mailbox_take(box);
    post(box, &at[2]);
    assert_int_equal(wakes, 2);
    pd_mailbox_take(box);
    pd_mailbox_free(box);
}

TEST(waits_no_longer_than_its_deadline)
{
    pd_mailbox *box = pd_mailbox_new(NULL, NULL);
    uint64_t begun = now_ns();
    bool closed = true;

    assert_null(pd_mailbox_wait(box, begun + 20000000u, &closed));
    assert_false(closed);
    assert_true(now_ns() - begun >= 20000000u);
    pd_mailbox_free(box);
}

TEST(a_closed_box_refuses_mail_and_ends_waiting)
{
    pd_mailbox *box = pd_mailbox_new(NULL, NULL);
    letter early = { .number = 1 }, late = { .number = 2 };
    bool closed = false;

    post(box, &early);
    pd_mailbox_close(box);
    assert_int_equal(pd_mailbox_post(box, &late.mail, &late.mail), PD_UNAVAILABLE);
    assert_ptr_equal(pd_mailbox_wait(box, UINT64_MAX, &closed), &early.mail); /* a letter posted before the mailbox
                                                                               * was closed */
    assert_null(pd_mailbox_wait(box, UINT64_MAX, &closed));
    assert_true(closed);
    pd_mailbox_free(box);
}

typedef struct sender {
    pd_mailbox *box;
    int number;
    letter letters[LETTERS];
} sender;

static void *send_all(void *arg)
{
    sender *s = arg;

    for (int i = 0; i < LETTERS; i++) {
        s->letters[i] = (letter){ .sender = s->number, .number = i };
        pd_mailbox_post(s->box, &s->letters[i].mail, &s->letters[i].mail);
    }
    return NULL;
}

TEST(loses_nothing_of_many_senders_and_keeps_each_ones_order)
{
    static sender senders[SENDERS];
    pd_mailbox *box = pd_mailbox_new(NULL, NULL);
    pthread_t thread[SENDERS];
    int next[SENDERS] = { 0 }, total = 0;
    bool closed;

    for (int i = 0; i < SENDERS; i++) {
        senders[i].box = box;
        senders[i].number = i;
        assert_int_equal(pthread_create(&thread[i], NULL, send_all, &senders[i]), 0);
    }
    while (total < SENDERS * LETTERS) {
        pd_mail *mail = pd_mailbox_wait(box, now_ns() + 10000000000u, &closed);
        assert_non_null(mail);
        for (; mail != NULL; mail = mail->next, total++) {
            letter *l = (letter *)mail;
            assert_int_equal(l->number, next[l->sender]++);
        }
    }
    for (int i = 0; i < SENDERS; i++) pthread_join(thread[i], NULL);
    pd_mailbox_free(box);
}
