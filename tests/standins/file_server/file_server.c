/* A file server as NFS makes one felt, on this host: a FUSE file system that shows a folder in its own place.
 *
 *     file_server CONTROL -f -o allow_other FOLDER
 *
 * root is squashed to nobody: it is refused what others may not do. While the file "hangs" is in the folder CONTROL
 * nothing is answered, and who asks cannot be killed. A user whose number is a line of the file "over-quota" there
 * makes files and writes to them, as a client of NFS caches that; that nothing was stored is said when the file is
 * closed. */

#define _GNU_SOURCE
#define FUSE_USE_VERSION 31

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NOBODY 65534
#define FILE_OF(info) ((int)(info)->fh)
#define FILES 65536

static int folder, control;
static char lost[FILES]; /* by the number of the open file: a write to it was not stored */

/* Wait while the server hangs, and go on as the user who asks. Returns the path below the folder. */
static const char *request(const char *path)
{
    struct fuse_context *context = fuse_get_context();

    while (faccessat(control, "hangs", F_OK, 0) == 0)
        usleep(50000);
    setfsgid(context->uid == 0 ? NOBODY : context->gid);
    setfsuid(context->uid == 0 ? NOBODY : context->uid);
    return path[1] ? path + 1 : ".";
}

static int over_quota(uid_t user)
{
    unsigned number;
    int found = 0;
    int lines = openat(control, "over-quota", O_RDONLY | O_CLOEXEC);
    FILE *file = lines < 0 ? NULL : fdopen(lines, "r");

    if (file == NULL)
        return 0;
    while (!found && fscanf(file, "%u", &number) == 1)
        found = number == user;
    fclose(file);
    return found;
}

static int answer(long result)
{
    return result < 0 ? -errno : 0;
}

static int fs_getattr(const char *path, struct stat *about, struct fuse_file_info *info)
{
    path = request(path);
    return answer(info ? fstat(FILE_OF(info), about) : fstatat(folder, path, about, AT_SYMLINK_NOFOLLOW));
}

static int fs_access(const char *path, int mode)
{
    struct stat about;
    struct fuse_context *context = fuse_get_context();
    uid_t user = context->uid ? context->uid : NOBODY;
    mode_t rights;

    /* access(2) would ask for root, whom this process still is */
    if (fstatat(folder, request(path), &about, 0) < 0)
        return -errno;
    rights = about.st_uid == user ? about.st_mode >> 6 : about.st_gid == context->gid ? about.st_mode >> 3 : about.st_mode;
    return (mode & 7 & ~rights) ? -EACCES : 0;
}

static int fs_readlink(const char *path, char *target, size_t size)
{
    ssize_t length = readlinkat(folder, request(path), target, size - 1);

    if (length < 0)
        return -errno;
    target[length] = '\0';
    return 0;
}

static int fs_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                      enum fuse_readdir_flags flags)
{
    int opened = openat(folder, request(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = opened < 0 ? NULL : fdopendir(opened);
    struct dirent *entry;

    (void)offset, (void)info, (void)flags;
    if (entries == NULL)
        return -errno;
    while ((entry = readdir(entries)) != NULL)
        fill(buffer, entry->d_name, NULL, 0, 0);
    closedir(entries);
    return 0;
}

static int fs_mkdir(const char *path, mode_t mode)
{
    path = request(path);
    return answer(mkdirat(folder, path, mode));
}

static int fs_mknod(const char *path, mode_t mode, dev_t device)
{
    path = request(path);
    return answer(mknodat(folder, path, mode, device));
}

static int fs_symlink(const char *target, const char *path)
{
    path = request(path);
    return answer(symlinkat(target, folder, path));
}

static int fs_link(const char *from, const char *to)
{
    from = request(from), to = request(to);
    return answer(linkat(folder, from, folder, to, 0));
}

static int fs_unlink(const char *path)
{
    path = request(path);
    return answer(unlinkat(folder, path, 0));
}

static int fs_rmdir(const char *path)
{
    path = request(path);
    return answer(unlinkat(folder, path, AT_REMOVEDIR));
}

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    from = request(from), to = request(to);
    return answer(renameat2(folder, from, folder, to, flags));
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    path = request(path);
    return answer(info ? fchmod(FILE_OF(info), mode) : fchmodat(folder, path, mode, 0));
}

static int fs_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *info)
{
    path = request(path);
    return answer(info ? fchown(FILE_OF(info), user, group) : fchownat(folder, path, user, group, AT_SYMLINK_NOFOLLOW));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    int opened, result;

    path = request(path);
    if (info)
        return answer(ftruncate(FILE_OF(info), size));
    if ((opened = openat(folder, path, O_WRONLY | O_CLOEXEC)) < 0)
        return -errno;
    result = answer(ftruncate(opened, size));
    close(opened);
    return result;
}

static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    path = request(path);
    return answer(info ? futimens(FILE_OF(info), times) : utimensat(folder, path, times, AT_SYMLINK_NOFOLLOW));
}

static int opened(int file, struct fuse_file_info *info)
{
    if (file < 0)
        return -errno;
    info->fh = file;
    return 0;
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    path = request(path);
    return opened(openat(folder, path, info->flags | O_CREAT | O_CLOEXEC, mode), info);
}

static int fs_open(const char *path, struct fuse_file_info *info)
{
    path = request(path);
    return opened(openat(folder, path, info->flags | O_CLOEXEC), info);
}

static int fs_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *info)
{
    ssize_t length;

    request(path);
    length = pread(FILE_OF(info), buffer, size, offset);
    return length < 0 ? -errno : length;
}

static int fs_write(const char *path, const char *buffer, size_t size, off_t offset, struct fuse_file_info *info)
{
    ssize_t length;

    request(path);
    if (over_quota(fuse_get_context()->uid)) {
        __atomic_store_n(&lost[FILE_OF(info) % FILES], 1, __ATOMIC_SEQ_CST);
        return size;
    }
    length = pwrite(FILE_OF(info), buffer, size, offset);
    return length < 0 ? -errno : length;
}

static int fs_flush(const char *path, struct fuse_file_info *info)
{
    request(path);
    return __atomic_load_n(&lost[FILE_OF(info) % FILES], __ATOMIC_SEQ_CST) ? -EDQUOT : 0;
}

static int fs_fsync(const char *path, int data, struct fuse_file_info *info)
{
    (void)data;
    return fs_flush(path, info);
}

static int fs_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    __atomic_store_n(&lost[FILE_OF(info) % FILES], 0, __ATOMIC_SEQ_CST);
    close(FILE_OF(info));
    return 0;
}

static int fs_statfs(const char *path, struct statvfs *about)
{
    request(path);
    return answer(fstatvfs(folder, about));
}

static const struct fuse_operations operations = {
    .getattr = fs_getattr, .access = fs_access,     .readlink = fs_readlink, .readdir = fs_readdir,
    .mkdir = fs_mkdir,     .mknod = fs_mknod,       .symlink = fs_symlink,   .link = fs_link,
    .unlink = fs_unlink,   .rmdir = fs_rmdir,       .rename = fs_rename,     .chmod = fs_chmod,
    .chown = fs_chown,     .truncate = fs_truncate, .utimens = fs_utimens,   .create = fs_create,
    .open = fs_open,       .read = fs_read,         .write = fs_write,       .flush = fs_flush,
    .fsync = fs_fsync,     .release = fs_release,   .statfs = fs_statfs,
};

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    control = open(words[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    folder = open(words[count - 1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (control < 0 || folder < 0 || setgroups(0, NULL) < 0)
        return perror(words[count - 1]), 1;
    umask(0);
    words[1] = words[0];
    return fuse_main(count - 1, words + 1, &operations, NULL);
}
