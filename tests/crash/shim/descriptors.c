/* Notes each close of a descriptor that is not open: somebody closed it before, and in a process with threads the number
 * may by then have been somebody else's.
 *
 * Loaded by LD_PRELOAD. KBLOCK_DESCRIPTORS is a file to which each one adds a line: the number of the descriptor. Only
 * the process that was started with it is watched, not what it forks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int notes = -1;
static pid_t watched;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KBLOCK_DESCRIPTORS");
    if (path != NULL) {
        notes = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        watched = getpid();
    }
}

int close(int fd) {
    int result = syscall(SYS_close, fd);
    if (result == -1 && errno == EBADF && notes != -1 && getpid() == watched) {
        char line[16];
        int length = snprintf(line, sizeof line, "%d\n", fd);
        syscall(SYS_write, notes, line, length);
        errno = EBADF;
    }
    return result;
}
