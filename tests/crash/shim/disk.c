/* A disk that can lose power and fail: what a process asks of the file system, as the libc calls say it.
 *
 * Loaded by LD_PRELOAD; tests/crash/power/disk.py reads what it writes. It changes no call that does not fail on order.
 *
 * KBLOCK_DISK_ROOT  paths under it are watched
 * KBLOCK_DISK       a folder: "events", one line an event, fields separated by tabs (see below); "kept/N", hard links
 *                   to files whose name was taken away, so that a name that was not taken away durably can come back;
 *                   "content/INODE", what a file of at most SMALL bytes held at its last sync (files written in place)
 * KBLOCK_DISK_WRITES  when set, writes are events too
 * KBLOCK_FAULT      a file that is read at each write and sync: "OP SUBSTRING SKIP ERRNO COUNT"; after SKIP calls of OP
 *                   (write, fsync, fdatasync) on a path with SUBSTRING, the next COUNT (-1: all) fail with ERRNO
 *
 * create INODE PATH · mkdir PATH · rename FROM TO KEPT|- · link FROM TO · unlink PATH KEPT · rmdir PATH
 * sync INODE SIZE PATH · dirsync PATH · write INODE BYTES PATH · fault OP PATH
 *
 * The size and the content of a sync are those before it began: what another thread writes meanwhile is not counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define SMALL 16384

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The real calls, past our own interposition. */
static int sys_open(const char *path, int flags, int mode) { return syscall(SYS_openat, AT_FDCWD, path, flags, mode); }
static ssize_t sys_write(int fd, const void *data, size_t n) { return syscall(SYS_write, fd, data, n); }

static void event(const char *format, ...) {
    const char *folder = getenv("KBLOCK_DISK");
    char name[PATH_MAX], line[3 * PATH_MAX];
    int saved = errno;
    if (!folder) return;
    snprintf(name, sizeof name, "%s/events", folder);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    int out = sys_open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (out < 0 || sys_write(out, line, length) != length) abort();
    syscall(SYS_close, out);
    errno = saved;
}

static void collapse(char *path) {
    char *to = path;
    for (char *from = path; *from; from++)
        if (!(from[0] == '/' && from[1] == '/')) *to++ = *from;
    *to = 0;
}

static int below_root(const char *path) {
    const char *root = getenv("KBLOCK_DISK_ROOT");
    size_t length = root ? strlen(root) : 0;
    return length && getenv("KBLOCK_DISK") && !strncmp(path, root, length) && (!path[length] || path[length] == '/');
}

static int path_of(int fd, char *path) {
    char link[64];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* The absolute path of (folder, name) in full; false when it is not watched. */
static int resolve(int folder, const char *name, char *full) {
    char base[PATH_MAX];
    if (name[0] == '/') snprintf(full, PATH_MAX, "%s", name);
    else {
        if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !path_of(folder, base)) return 0;
        if (snprintf(full, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return 0;
    }
    collapse(full);
    return below_root(full);
}

static int exists(const char *path, struct stat *st) {
    int saved = errno, found = !fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
    errno = saved;
    return found;
}

/* A second name for a file that is about to lose this one; "-" when there is none. */
static void keep(const char *path, char *kept) {
    static unsigned number;
    struct stat st;
    char name[PATH_MAX];
    int saved = errno;
    strcpy(kept, "-");
    if (!exists(path, &st) || !S_ISREG(st.st_mode)) return;
    snprintf(kept, 64, "%d-%u", (int)getpid(), __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED));
    snprintf(name, sizeof name, "%s/kept/%s", getenv("KBLOCK_DISK"), kept);
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, name, 0)) {
        if (errno != EXDEV) abort();
        strcpy(kept, "-"); /* the notes are on another file system: names cannot come back */
    }
    errno = saved;
}

/* Names ------------------------------------------------------------------------------------------------------------ */

static int opened(int folder, const char *path, int flags, int mode) {
    struct stat st;
    char full[PATH_MAX];
    int watched = (flags & O_CREAT) && resolve(folder, path, full) && !exists(full, &st);
    int fd = syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && watched && !fstat(fd, &st)) event("create\t%lu\t%s\n", (unsigned long)st.st_ino, full);
    return fd;
}

#define MODE(flags, last) \
    int mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list l; va_start(l, last); mode = va_arg(l, int); va_end(l); }
int open(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int d, const char *path, int flags, ...) { MODE(flags, flags) return opened(d, path, flags, mode); }
int openat64(int d, const char *path, int flags, ...) { MODE(flags, flags) return opened(d, path, flags | O_LARGEFILE, mode); }

static int renamed(int d, const char *from, int e, const char *to) {
    char source[PATH_MAX], target[PATH_MAX], kept[64] = "-";
    int watched = resolve(d, from, source) & resolve(e, to, target);
    if (watched) keep(target, kept);
    int result = syscall(SYS_renameat2, d, from, e, to, 0);
    if (!result && watched) event("rename\t%s\t%s\t%s\n", source, target, kept);
    return result;
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int d, const char *from, int e, const char *to) { return renamed(d, from, e, to); }

static int linked(int d, const char *from, int e, const char *to, int flags) {
    char source[PATH_MAX], target[PATH_MAX];
    int watched = resolve(e, to, target);
    resolve(d, from, source);
    int result = syscall(SYS_linkat, d, from, e, to, flags);
    if (!result && watched) event("link\t%s\t%s\n", source, target);
    return result;
}
int link(const char *from, const char *to) { return linked(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int d, const char *from, int e, const char *to, int flags) { return linked(d, from, e, to, flags); }

static int unlinked(int d, const char *path, int flags) {
    char full[PATH_MAX], kept[64] = "-";
    int watched = resolve(d, path, full);
    if (watched && !(flags & AT_REMOVEDIR)) keep(full, kept);
    int result = syscall(SYS_unlinkat, d, path, flags);
    if (result || !watched) return result;
    if (flags & AT_REMOVEDIR) event("rmdir\t%s\n", full);
    else event("unlink\t%s\t%s\n", full, kept);
    return result;
}
int unlink(const char *path) { return unlinked(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinked(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int d, const char *path, int flags) { return unlinked(d, path, flags); }

static int made(int d, const char *path, mode_t mode) {
    char full[PATH_MAX];
    int watched = resolve(d, path, full), result = syscall(SYS_mkdirat, d, path, mode);
    if (!result && watched) event("mkdir\t%s\n", full);
    return result;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int d, const char *path, mode_t mode) { return made(d, path, mode); }

/* Faults ----------------------------------------------------------------------------------------------------------- */

static int faulty(const char *op, int fd) {
    static char last[512];
    static int seen;
    char text[512] = "", wanted[32], part[256], path[PATH_MAX];
    int skip, number, count, saved = errno, result = 0;
    const char *name = getenv("KBLOCK_FAULT");
    if (!name) return 0;
    int in = sys_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (in >= 0) {
        if (syscall(SYS_read, in, text, sizeof text - 1) < 0) text[0] = 0;
        syscall(SYS_close, in);
    }
    pthread_mutex_lock(&lock);
    if (strcmp(text, last)) strcpy(last, text), seen = 0;
    if (sscanf(text, "%31s %255s %d %d %d", wanted, part, &skip, &number, &count) == 5 && !strcmp(op, wanted) &&
        path_of(fd, path) && below_root(path) && strstr(path, part)) {
        seen++;
        if (seen > skip && (count < 0 || seen <= skip + count)) result = number;
    }
    pthread_mutex_unlock(&lock);
    if (result) event("fault\t%s\t%s\n", op, path);
    errno = saved;
    return result;
}

/* Content ---------------------------------------------------------------------------------------------------------- */

static void keep_content(int fd, const struct stat *st, char *spare) {
    char name[PATH_MAX], data[SMALL];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    snprintf(spare, PATH_MAX, "%s/content/%lu.%ld", getenv("KBLOCK_DISK"), (unsigned long)st->st_ino, syscall(SYS_gettid));
    int in = sys_open(name, O_RDONLY | O_CLOEXEC, 0), out = sys_open(spare, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t got = in < 0 ? -1 : syscall(SYS_pread64, in, data, sizeof data, 0L);
    if (got > st->st_size) got = st->st_size;
    if (out < 0 || got < 0 || sys_write(out, data, got) != got) abort();
    syscall(SYS_close, in);
    syscall(SYS_close, out);
}

static int synced(const char *op, long number, int fd) {
    struct stat st;
    char path[PATH_MAX], spare[PATH_MAX] = "", name[PATH_MAX];
    int error = faulty(op, fd), saved = errno;
    if (error) return errno = error, -1;
    int watched = !fstat(fd, &st) && path_of(fd, path) && below_root(path);
    int small = watched && S_ISREG(st.st_mode) && st.st_size <= SMALL;
    if (small) keep_content(fd, &st, spare);
    errno = saved;
    int result = syscall(number, fd);
    if (result || !watched) return result;
    saved = errno;
    snprintf(name, sizeof name, "%s/content/%lu", getenv("KBLOCK_DISK"), (unsigned long)st.st_ino);
    if (small && syscall(SYS_renameat2, AT_FDCWD, spare, AT_FDCWD, name, 0)) abort();
    if (S_ISDIR(st.st_mode)) event("dirsync\t%s\n", path);
    else event("sync\t%lu\t%lld\t%s\n", (unsigned long)st.st_ino, (long long)st.st_size, path);
    errno = saved;
    return result;
}
int fsync(int fd) { return synced("fsync", SYS_fsync, fd); }
int fdatasync(int fd) { return synced("fdatasync", SYS_fdatasync, fd); }

static ssize_t wrote(int fd, ssize_t result) {
    struct stat st;
    char path[PATH_MAX];
    int saved = errno;
    if (result > 0 && getenv("KBLOCK_DISK_WRITES") && path_of(fd, path) && below_root(path) && !fstat(fd, &st))
        event("write\t%lu\t%lld\t%s\n", (unsigned long)st.st_ino, (long long)result, path);
    errno = saved;
    return result;
}

#define WRITING(call) \
    int error = faulty("write", fd); \
    if (error) return errno = error, -1; \
    return wrote(fd, call)
ssize_t write(int fd, const void *data, size_t n) { WRITING(syscall(SYS_write, fd, data, n)); }
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { WRITING(syscall(SYS_pwrite64, fd, data, n, at)); }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) { WRITING(syscall(SYS_pwrite64, fd, data, n, at)); }
ssize_t writev(int fd, const struct iovec *parts, int n) { WRITING(syscall(SYS_writev, fd, parts, n)); }
