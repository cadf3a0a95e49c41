/* Counts what a process syncs, and changes nothing: two 64-bit counters in the file that BENCH_SYNCS names, the
 * fdatasyncs first, the fsyncs after them. Loaded by LD_PRELOAD; tests/bench/syncs.py reads it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t *counters;

__attribute__((constructor)) static void open_counters(void) {
    const char *name = getenv("BENCH_SYNCS");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, 2 * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) counters = mapped;
    close(file);
}

static int counted(int number, long call, int fd) {
    if (counters) __atomic_add_fetch(counters + number, 1, __ATOMIC_RELAXED);
    return syscall(call, fd);
}

int fdatasync(int fd) { return counted(0, SYS_fdatasync, fd); }
int fsync(int fd) { return counted(1, SYS_fsync, fd); }
