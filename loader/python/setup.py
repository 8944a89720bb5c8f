"""The version and the extension of the wheel. It is linked with libnnpipe.so.1 of the source tree's top folder."""

import glob
import pathlib
import re

from setuptools import Extension, setup

TOP = pathlib.Path("../..")
version = re.search(r'NP_VERSION "(.*)"', (TOP / "loader/base/version.h").read_text())[1]
extension = Extension(
    "nnpipe._nnpipe",
    sorted(glob.glob("*.c")),
    include_dirs=[str(TOP)],
    define_macros=[("Py_LIMITED_API", "0x030b0000"), ("_GNU_SOURCE", None)],
    extra_compile_args=["-std=c11", "-O2", "-g0", "-fvisibility=hidden"],
    extra_link_args=[str(TOP / "libnnpipe.so.1"), "-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,--build-id=none"],
    py_limited_api=True,
)
setup(version=version, ext_modules=[extension])
