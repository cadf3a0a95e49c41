/* A wall clock that a test sets: what the libc calls say of CLOCK_REALTIME, moved by a number of seconds.
 *
 * Loaded by LD_PRELOAD; tests/integration/clocks/wall.py writes the number. No other clock is touched.
 *
 * KBLOCK_WALL  a file of eight bytes, a signed integer as the machine writes it, read at each call
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void map(void) {
    const char *name = getenv("KBLOCK_WALL");
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED) abort();
    seconds = found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    if (into) *into = found.tv_sec;
    return found.tv_sec;
}
