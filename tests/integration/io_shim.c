/* Stands between a process and the kernel: writes down what it writes, sends and syncs, and makes that fail.

   Preloaded (LD_PRELOAD) into a broker by io_shim.py, which also reads the journal and says what shall fail.

     SHIM_OF_DISK_DIRECTORY   whose files and names are looked at; every TCP socket is, too
     SHIM_OF_DISK_JOURNAL     the journal: one record when a call begins, another when it has ended
     SHIM_OF_DISK_WHOLE       if it is there, all that is written to files is noted, else its first 64 KiB
     SHIM_OF_DISK_CONTROL     a file of struct control, shared with the test, which may change it at any time

   Every call goes straight to the kernel, so the real functions need not be found. A record is written by
   one append, after the call's begin was written and before its caller goes on: the order of records is the
   order in which things happened. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DATA_MAX (64 << 10)
#define PIECES_MAX 1022 /* with the two before them as many as one call may have */
#define TARGET_MAX 512

/* io_shim.py knows these by number. */
enum kind { WRITE = 1, SYNC = 2, SEND = 3, OPEN = 4, RENAME = 5, UNLINK = 6, TRUNCATE = 7, MKDIR = 8, LINK = 9 };
enum phase { BEGIN = 0, END = 1 };

struct control {
    _Atomic int32_t full;       /* not 0: every write below the directory fails with ENOSPC */
    _Atomic int32_t fail_syncs; /* so many syncs to come of files that match fail with EIO */
    _Atomic int32_t hold_syncs; /* not 0: a sync of a file that matches waits before it does anything */
    _Atomic int32_t hold_sends; /* not 0: a send waits before it does anything */
    _Atomic int32_t held;       /* so many calls are waiting */
    _Atomic int32_t pass_syncs; /* so many syncs of files that match go well before those that fail */
    _Atomic int32_t fail_writes; /* so many writes to come to files that match fail; -1: all of them */
    _Atomic int32_t write_error; /* with this errno */
    char match[64];             /* what a path must end with, or before a '*' contain; "" matches every file */
};

struct record {
    uint32_t magic;
    uint8_t kind;
    uint8_t phase;
    uint16_t target_bytes;
    int32_t thread;
    int32_t error;
    int64_t result;
    int64_t offset;
    uint32_t data_bytes;
    uint32_t process;
};

static char directory[TARGET_MAX];
static size_t directory_length;
static int journal = -1;
static int whole;
static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("SHIM_OF_DISK_DIRECTORY");
    const char *journal_path = getenv("SHIM_OF_DISK_JOURNAL");
    const char *control_path = getenv("SHIM_OF_DISK_CONTROL");
    if (where == NULL || journal_path == NULL || control_path == NULL) return;
    whole = getenv("SHIM_OF_DISK_WHOLE") != NULL;
    snprintf(directory, sizeof directory, "%s/", where);
    directory_length = strlen(directory);
    int file = (int)syscall(SYS_openat, AT_FDCWD, control_path, O_RDWR | O_CLOEXEC, 0);
    void *map = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (map == MAP_FAILED) abort();
    control = map;
    journal = (int)syscall(SYS_openat, AT_FDCWD, journal_path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    if (journal < 0) abort();
}

/* Names a path by its place in the directory, "." for the directory itself. Returns whether it is in there. */
static int below(const char *path, char *target) {
    if (strncmp(path, directory, directory_length) == 0) {
        snprintf(target, TARGET_MAX, "%s", path + directory_length);
        return 1;
    }
    if (strncmp(path, directory, directory_length - 1) != 0 || path[directory_length - 1] != '\0') return 0;
    snprintf(target, TARGET_MAX, ".");
    return 1;
}

/* The same for a path as a call gives it: absolute, or from a directory that is open, or the current one. */
static int name_of_path(int from, const char *path, char *target) {
    char link[64], full[2 * TARGET_MAX];
    int error = errno;
    if (journal < 0) return 0;
    if (path[0] == '/') {
        snprintf(full, sizeof full, "%s", path);
    } else {
        if (from == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", from);
        ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, full, TARGET_MAX - 1);
        errno = error;
        if (length <= 0) return 0;
        snprintf(full + length, sizeof full - (size_t)length, "/%s", path);
    }
    return below(full, target);
}

/* Names what a descriptor is open on, if the journal is to know of it: a file below the directory, by its
   path in it, or a TCP socket, by the port of its peer. Returns 'f', 's' or 0. */
static int name_of(int descriptor, char *target) {
    char link[64], path[TARGET_MAX];
    if (journal < 0 || descriptor == journal) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = '\0';
    if (below(path, target)) return 'f';
    if (strncmp(path, "socket:", 7) != 0) return 0;
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, (struct sockaddr *)&peer, &size) != 0) return 0;
    if (peer.ss_family != AF_INET) return 0;
    snprintf(target, TARGET_MAX, "%u", ntohs(((struct sockaddr_in *)&peer)->sin_port));
    return 's';
}

static void note(int kind, int phase, const char *target, int64_t offset, int64_t result, int error,
                 const struct iovec *data, int count) {
    struct record record = {
        .magic = 0x53484d31,
        .kind = (uint8_t)kind,
        .phase = (uint8_t)phase,
        .target_bytes = (uint16_t)strlen(target),
        .thread = (int32_t)syscall(SYS_gettid),
        .error = error,
        .result = result,
        .offset = offset,
        .process = (uint32_t)getpid(),
    };
    struct iovec parts[2 + PIECES_MAX] = {{&record, sizeof record}, {(void *)target, record.target_bytes}};
    int used = 2;
    size_t left = result > 0 ? (size_t)result : 0;
    for (int i = 0; i < count && used < 2 + PIECES_MAX && left > 0; i++) {
        size_t length = data[i].iov_len < left ? data[i].iov_len : left;
        if (!whole && length > DATA_MAX - record.data_bytes) length = DATA_MAX - record.data_bytes;
        parts[used++] = (struct iovec){data[i].iov_base, length};
        record.data_bytes += (uint32_t)length;
        left -= length;
    }
    ssize_t size = (ssize_t)(sizeof record + record.target_bytes + record.data_bytes);
    /* A journal with a hole proves nothing. */
    if (whole && count > 0 && result > (ssize_t)record.data_bytes) abort();
    if (syscall(SYS_writev, journal, parts, used) != size) abort();
}

static void wait_while(_Atomic int32_t *flag) {
    if (*flag == 0) return;
    struct timespec pause = {0, 1000000};
    control->held++;
    while (*flag != 0) nanosleep(&pause, NULL);
    control->held--;
}

static int matches(const char *target) {
    size_t wanted = strnlen(control->match, sizeof control->match), has = strlen(target);
    if (wanted > 0 && control->match[wanted - 1] == '*') {
        char part[sizeof control->match];
        snprintf(part, sizeof part, "%.*s", (int)wanted - 1, control->match);
        return strstr(target, part) != NULL;
    }
    return wanted <= has && strncmp(target + has - wanted, control->match, wanted) == 0;
}

/* Takes one off a count, unless that is 0. Whether it was not. */
static int take(_Atomic int32_t *count) {
    int32_t left = *count;
    while (left > 0 && !atomic_compare_exchange_weak(count, &left, left - 1)) {}
    return left != 0;
}

static int64_t fail(int error) {
    errno = error;
    return -1;
}

/* One call that writes `count` pieces of data. `number` is the system call, with up to four more arguments. */
static ssize_t put(int number, int descriptor, const struct iovec *data, int count, int64_t offset, long second,
                   long third, long fourth, long fifth, long sixth) {
    char target[TARGET_MAX];
    int what = name_of(descriptor, target);
    if (what == 0) return syscall(number, descriptor, second, third, fourth, fifth, sixth);
    int kind = what == 'f' ? WRITE : SEND;
    if (kind == SEND) wait_while(&control->hold_sends);
    note(kind, BEGIN, target, offset, 0, 0, NULL, 0);
    ssize_t result;
    if (kind == WRITE && control->full) result = fail(ENOSPC);
    else if (kind == WRITE && matches(target) && take(&control->fail_writes)) result = fail(control->write_error);
    else result = syscall(number, descriptor, second, third, fourth, fifth, sixth);
    int error = result < 0 ? errno : 0;
    if (kind == WRITE && offset < 0 && result >= 0) offset = syscall(SYS_lseek, descriptor, 0L, SEEK_CUR) - result;
    note(kind, END, target, offset, result, error, data, count);
    errno = error;
    return result;
}

ssize_t write(int descriptor, const void *data, size_t length) {
    struct iovec piece = {(void *)data, length};
    return put(SYS_write, descriptor, &piece, 1, -1, (long)data, (long)length, 0, 0, 0);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t offset) {
    struct iovec piece = {(void *)data, length};
    return put(SYS_pwrite64, descriptor, &piece, 1, offset, (long)data, (long)length, (long)offset, 0, 0);
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    return pwrite64(descriptor, data, length, offset);
}

ssize_t writev(int descriptor, const struct iovec *data, int count) {
    return put(SYS_writev, descriptor, data, count, -1, (long)data, count, 0, 0, 0);
}

ssize_t pwritev64(int descriptor, const struct iovec *data, int count, off64_t offset) {
    return put(SYS_pwritev, descriptor, data, count, offset, (long)data, count, (long)offset, 0, 0);
}

ssize_t pwritev(int descriptor, const struct iovec *data, int count, off_t offset) {
    return pwritev64(descriptor, data, count, offset);
}

ssize_t sendto(int descriptor, const void *data, size_t length, int flags, const struct sockaddr *to,
               socklen_t to_length) {
    struct iovec piece = {(void *)data, length};
    return put(SYS_sendto, descriptor, &piece, 1, -1, (long)data, (long)length, flags, (long)to, to_length);
}

ssize_t send(int descriptor, const void *data, size_t length, int flags) {
    return sendto(descriptor, data, length, flags, NULL, 0);
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags) {
    return put(SYS_sendmsg, descriptor, message->msg_iov, (int)message->msg_iovlen, -1, (long)message, flags, 0, 0, 0);
}

static int sync_with(int number, int descriptor) {
    char target[TARGET_MAX];
    if (name_of(descriptor, target) != 'f') return (int)syscall(number, descriptor);
    if (matches(target)) wait_while(&control->hold_syncs);
    note(SYNC, BEGIN, target, -1, 0, 0, NULL, 0);
    int failing = matches(target) && !take(&control->pass_syncs) && take(&control->fail_syncs);
    int result = failing ? (int)fail(EIO) : (int)syscall(number, descriptor);
    int error = result < 0 ? errno : 0;
    note(SYNC, END, target, -1, result, error, NULL, 0);
    errno = error;
    return result;
}

/* Names and lengths. Two paths stand in one target, with a line's end between them. */

static int64_t noted(int kind, const char *target, int64_t offset, int number, long first, long second, long third,
                     long fourth, long fifth) {
    note(kind, BEGIN, target, offset, 0, 0, NULL, 0);
    int64_t result = syscall(number, first, second, third, fourth, fifth);
    int error = result < 0 ? errno : 0;
    note(kind, END, target, offset, result, error, NULL, 0);
    errno = error;
    return result;
}

/* `offset` of the record: 1 if what the file held is gone. */
static int open_with(int from, const char *path, int flags, mode_t mode) {
    char target[TARGET_MAX];
    int plain = (flags & O_TMPFILE) == O_TMPFILE || (flags & (O_CREAT | O_TRUNC)) == 0;
    if (plain || !name_of_path(from, path, target)) return (int)syscall(SYS_openat, from, path, flags, mode);
    return (int)noted(OPEN, target, (flags & O_TRUNC) != 0, SYS_openat, from, (long)path, flags, mode, 0);
}

#define OPEN_CALL(name, parameters, from)                        \
    int name parameters {                                        \
        mode_t mode = 0;                                         \
        if (flags & (O_CREAT | O_TMPFILE)) {                     \
            va_list more;                                        \
            va_start(more, flags);                               \
            mode = (mode_t)va_arg(more, int);                    \
            va_end(more);                                        \
        }                                                        \
        return open_with(from, path, flags, mode);               \
    }

OPEN_CALL(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN_CALL(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN_CALL(openat, (int from, const char *path, int flags, ...), from)
OPEN_CALL(openat64, (int from, const char *path, int flags, ...), from)

int creat(const char *path, mode_t mode) { return open_with(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static int two_paths(int kind, int number, int from, const char *old, int to, const char *new, int flags) {
    char first[TARGET_MAX], second[TARGET_MAX], target[2 * TARGET_MAX];
    if (!name_of_path(from, old, first) || !name_of_path(to, new, second))
        return (int)syscall(number, from, old, to, new, flags);
    snprintf(target, sizeof target, "%s\n%s", first, second);
    return (int)noted(kind, target, -1, number, from, (long)old, to, (long)new, flags);
}

int rename(const char *old, const char *new) {
    return two_paths(RENAME, SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
}

int renameat(int from, const char *old, int to, const char *new) {
    return two_paths(RENAME, SYS_renameat2, from, old, to, new, 0);
}

int link(const char *old, const char *new) { return two_paths(LINK, SYS_linkat, AT_FDCWD, old, AT_FDCWD, new, 0); }

int linkat(int from, const char *old, int to, const char *new, int flags) {
    return two_paths(LINK, SYS_linkat, from, old, to, new, flags);
}

int unlinkat(int from, const char *path, int flags) {
    char target[TARGET_MAX];
    if (!name_of_path(from, path, target)) return (int)syscall(SYS_unlinkat, from, path, flags);
    return (int)noted(UNLINK, target, -1, SYS_unlinkat, from, (long)path, flags, 0, 0);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int from, const char *path, mode_t mode) {
    char target[TARGET_MAX];
    if (!name_of_path(from, path, target)) return (int)syscall(SYS_mkdirat, from, path, mode);
    return (int)noted(MKDIR, target, -1, SYS_mkdirat, from, (long)path, mode, 0, 0);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int truncate64(const char *path, off64_t length) {
    char target[TARGET_MAX];
    if (!name_of_path(AT_FDCWD, path, target)) return (int)syscall(SYS_truncate, path, length);
    return (int)noted(TRUNCATE, target, length, SYS_truncate, (long)path, length, 0, 0, 0);
}

int truncate(const char *path, off_t length) { return truncate64(path, length); }

int ftruncate64(int descriptor, off64_t length) {
    char target[TARGET_MAX];
    if (name_of(descriptor, target) != 'f') return (int)syscall(SYS_ftruncate, descriptor, length);
    return (int)noted(TRUNCATE, target, length, SYS_ftruncate, descriptor, length, 0, 0, 0);
}

int ftruncate(int descriptor, off_t length) { return ftruncate64(descriptor, length); }

int fdatasync(int descriptor) { return sync_with(SYS_fdatasync, descriptor); }

int fsync(int descriptor) { return sync_with(SYS_fsync, descriptor); }
