/* Criterion compares texts with libgit2, only for assertions that these tests do not use; but each test's process would
 * read all certificates of the system for it. The program's functions come before the library's. */
int git_libgit2_init(void);
int git_libgit2_shutdown(void);

int git_libgit2_init(void)
{
    return 1;
}

int git_libgit2_shutdown(void)
{
    return 0;
}
