/* loopback.h - connects to a port of this machine. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

/* Returns a socket that is connected to a port of 127.0.0.1. Fails the test if nobody listens there. */
int loopback_connect(int port);

#endif
