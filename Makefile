# make            ./nnpipe, and ./libnnpipe-cuda.so where nvcc and cuDNN are found (libnnpipe-cuda-rows.so: nvcc)
# make demo       a small sample set, and a network trained on it
# make python     the Python package in build/python, for PYTHONPATH
# make test       the fast tests; make test-all: all of them; make test-long: the campaigns, resumable
# make check      layers, the walk, format, warnings as errors, unused public names, cppcheck
# make SAN=address,undefined test-all      make SAN=thread test-all
# make bench      ratios against peers, written to docs/BENCHMARKS.md
# make dist       one folder, and a .tar.xz of it, that runs on any x86-64 Linux with glibc 2.36
# make install    PREFIX=/usr/local DESTDIR= SYSCONFDIR=/etc; the next steps are in docs/SYSTEMD.md, and ldconfig for the library
# make wheel      dist/nnpipe-VERSION-...whl, the loader for Python, which pip installs
# make deb        dist/nnpipe_VERSION_amd64.deb, for this Debian
CC       = gcc
SAN      =
comma   := ,
B       := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
PREFIX   = /usr/local

PKGS     = liburing libzstd zlib yaml-0.1 libjpeg jansson libxxhash libcrypto spng sqlite3 libmicrohttpd libcurl libsystemd
OPT      = -O2 -g
# Against bugs in parsers of foreign bytes; no FORTIFY under sanitizers, which find more.
HARDEN   = -fstack-protector-strong -fstack-clash-protection -fcf-protection $(if $(SAN),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
WARN     = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wno-format-truncation -Wno-unused-parameter
CFLAGS   = -std=c11 -D_GNU_SOURCE $(OPT) $(HARDEN) $(WARN) -fno-strict-aliasing -fno-math-errno -ffp-contract=off -pthread -I. -I$(B) \
           $(shell pkg-config --cflags $(PKGS)) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -DNP_SAN -fno-sanitize-recover=undefined)
LDLIBS   = $(shell pkg-config --libs $(PKGS)) -ldnnl -lgomp -lm -ldl
RUNPATH  =
LDFLAGS  = -pthread -rdynamic -pie -Wl,-z,relro,-z,now,-z,noexecstack $(RUNPATH) $(if $(SAN),-fsanitize=$(SAN))

SRCS    := $(sort $(filter-out trainer/cuda/% loader/python/%,$(wildcard $(foreach room,daemon loader trainer,$(room)/*.c $(room)/*/*.c $(room)/*/*/*.c))))
OBJS    := $(SRCS:%.c=$(B)/%.o)
LIB      = $(B)/libnnpipe.a
NNPIPE   = $(if $(SAN),$(B)/nnpipe,nnpipe)
SHARED   = $(if $(SAN),$(B)/)libnnpipe.so.1

# The commit and a checksum of the shared headers: $(B)/build_id.h, written only when it changes.
$(shell sh scripts/build_id.sh $(B)/build_id.h)

.PHONY: all plugin python demo test test-all test-long check bench dist wheel deb install clean unit fuzz docs
all: $(NNPIPE) plugin $(SHARED) docs/CONFIG.md docs/SERVICE_CONFIG.md

$(NNPIPE): $(B)/daemon/main.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(LIB): $(filter-out $(B)/daemon/main.o,$(OBJS))
	@rm -f $@
	ar rcs $@ $^

# The loader for other programs, of the same objects; its header is loader/nnpipe.h.
# Loops for the compiler to make vectors of; no result depends on these flags.
$(B)/loader/pixels/pixel_loops_%.o: CFLAGS += -O3 -fno-trapping-math
$(B)/loader/%.o: CFLAGS += -fPIC -fno-semantic-interposition
$(SHARED): $(LIB) loader/nnpipe.map
	$(CC) -shared -pthread -Wl,-soname,libnnpipe.so.1 -Wl,--version-script=loader/nnpipe.map -Wl,-Bsymbolic \
	    -Wl,-z,defs,-z,relro,-z,now,-z,noexecstack,-z,nodelete $(RUNPATH) $(if $(SAN),-fsanitize=$(SAN)) -o $@ \
	    $(filter $(B)/loader/lib/%,$(OBJS)) $(LIB) $(shell pkg-config --libs liburing libzstd zlib yaml-0.1 libjpeg jansson libxxhash spng) -lm
	ln -sf $(@F) $(basename $@)

# The Python package, ready for PYTHONPATH=build/python; one extension for CPython 3.11 and later.
PYTHON   = python3
PY       = $(B)/python/nnpipe
PY_H     = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)
PY_FILES := $(patsubst loader/python/%,$(B)/python/%,$(wildcard loader/python/nnpipe/*.py loader/python/nnpipe/*.pyi loader/python/nnpipe/py.typed))
python: $(SHARED) $(PY_FILES)
	@if [ -e "$(PY_H)/Python.h" ]; then $(MAKE) -s $(PY)/_nnpipe.abi3.so; else \
	    echo "no Python package: Python.h of $(PYTHON) not found (Debian: python3-dev)"; fi
$(PY)/_nnpipe.abi3.so: $(wildcard loader/python/*.[ch]) loader/nnpipe.h $(SHARED) $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(filter-out -I%,$(CFLAGS)) -I. -isystem $(PY_H) -fPIC -fvisibility=hidden -shared -Wl,-z,relro,-z,now \
	    -o $@ $(filter %.c,$^) $(SHARED) -Wl,-rpath,$(abspath $(dir $(SHARED)))
$(B)/python/%: loader/python/%
	@mkdir -p $(@D) && cp $< $@

# The service's page is embedded unchanged; dygraphs is Debian's libjs-dygraphs.
DYGRAPHS = /usr/share/javascript/dygraphs
$(B)/daemon/ui/page.o: CFLAGS += -DNP_DYGRAPHS='"$(DYGRAPHS)"'
$(B)/daemon/ui/page.o: $(wildcard daemon/ui/page/*) docs/openapi.json $(DYGRAPHS)/dygraph.min.js

# Tests, and the kernels of an emulated GPU, are compiled quickly; what they test has the product's flags.
TEST_OPT := $(if $(SAN),$(OPT),-O1 -g1)
UNIT_OPT := $(if $(SAN),$(OPT),-O0 -g1)

# The flags of the objects; other flags rebuild them.
$(shell mkdir -p $(B) && echo '$(CFLAGS) $(TEST_OPT)' | cmp -s - $(B)/flags || echo '$(CFLAGS) $(TEST_OPT)' >$(B)/flags)

$(B)/tests/%.o: HARDEN =
$(B)/tests/%.o: OPT = $(TEST_OPT)
$(B)/tests/unit/test_%.o: OPT = $(UNIT_OPT)
$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# --- the CUDA plugin ---------------------------------------------------------
# gcc compiles C; nvcc compiles kernels for each GPU of CUDA_ARCHS that it supports, and PTX of the newest for
# later GPUs. The runtime is linked in; cuDNN and cuBLASLt are found when it runs. The output of ptxas for each
# kernel (registers, spills, stack frames) stays in *.ptxas; tests/cuda/registers.sh tests it.
NVCC       := $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDNN      := $(shell sh scripts/find_cudnn.sh 2>/dev/null)
TOOLKIT    := $(dir $(NVCC))..
CUDA_ARCHS ?= 80 86 89 90 100 120
CUDA_KNOWN  = $(filter $(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code)),$(CUDA_ARCHS))
GENCODE     = $(foreach a,$(CUDA_KNOWN),-gencode arch=compute_$a,code=sm_$a) \
              -gencode arch=compute_$(lastword $(CUDA_KNOWN)),code=compute_$(lastword $(CUDA_KNOWN))
# The GPUs of the kernels in build/cuda; another list rebuilds them.
ifneq ($(NVCC),)
$(shell mkdir -p build/cuda && echo "$(CUDA_KNOWN)" | cmp -s - build/cuda/archs || echo "$(CUDA_KNOWN)" >build/cuda/archs)
endif
CUDA_FLAGS  = $(addprefix -isystem ,$(CUDNN)) -isystem $(TOOLKIT)/include
CUDA_LIBS   = $(addprefix -L,$(wildcard $(TOOLKIT)/lib64 $(TOOLKIT)/lib $(TOOLKIT)/targets/x86_64-linux/lib)) \
              -lcudart_static -ldl -lrt -lpthread
CUDA_OBJS  := $(patsubst trainer/cuda/%.c,build/cuda/%.o,$(wildcard trainer/cuda/*.c)) \
              $(patsubst trainer/cuda/%.cu,build/cuda/%.cu.o,$(wildcard trainer/cuda/*.cu))
# libnnpipe's plugin needs neither cuDNN nor a program around it: it has its own copy of what it calls.
PLUGIN_LINK = $(CC) -shared -Wl,-z,nodelete,-z,relro,-z,now,-z,noexecstack
ROWS_BASE   = $(B)/loader/base/err.o $(B)/loader/base/mem.o
ROWS_MAP    = trainer/cuda/rows/plugin.map
ifneq ($(NVCC),)
plugin: $(if $(SAN),,libnnpipe-cuda-rows.so)
libnnpipe-cuda-rows.so: $(addprefix build/cuda/,rows/rows_cuda.o rows/buffers_cuda.o rows/kernels_format.cu.o gpu_cuda.o) $(ROWS_BASE) $(ROWS_MAP)
	$(PLUGIN_LINK) -Wl,-z,defs -Wl,--version-script=$(ROWS_MAP) -o $@ $(filter %.o,$^) $(CUDA_LIBS)
build/cuda/%.o: trainer/cuda/%.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CUDA_FLAGS) -fPIC -MMD -MP -c -o $@ $<
build/cuda/kernels_rows.cu.o: NVFLAGS = -fmad=false # its bytes are the host's
# A launch keeps the kernel's handle in a static variable, whose guard would need libstdc++: two threads that launch
# it first at the same time store the same handle.
build/cuda/rows/%.cu.o: NVHOST = ,-fno-threadsafe-statics
build/cuda/%.cu.o: trainer/cuda/%.cu build/cuda/archs
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -O3 $(NVFLAGS) -lineinfo --threads 2 -Xfatbin -compress-all -I. $(CUDA_FLAGS) $(GENCODE) -Xcompiler -fPIC,-fno-exceptions$(NVHOST),-Wall,-Wextra,-Wno-unused-parameter -Xptxas -v -MMD -MP -c -o $@ $< 2>$@.ptxas || { cat $@.ptxas; exit 1; }
	@grep -v ptxas $@.ptxas | grep -v 'bytes stack frame' || true
endif
ifneq ($(and $(NVCC),$(CUDNN)),)
plugin: $(if $(SAN),,libnnpipe-cuda.so)
libnnpipe-cuda.so: $(CUDA_OBJS)
	$(PLUGIN_LINK) -Wl,--exclude-libs,ALL -o $@ $^ $(CUDA_LIBS)
else
plugin:
	@echo "no CUDA plugin: $(if $(NVCC),cuDNN's headers,nvcc) not found$(if $(NVCC), (CUDNN_INCLUDE=FOLDER names the one of cudnn.h)); the CPU device is complete without it"
endif

# --- tests -------------------------------------------------------------------
# The plugin's kernels as plain C++ on an emulated grid, and their callers; the whole plugin over an emulated
# runtime, cuDNN and cuBLASLt, with a program beside it; and a program that lets cuDNN plan whole networks for
# GPUs given as descriptions.
ifneq ($(and $(NVCC),$(CUDNN)),)
EMU_CU  := $(patsubst trainer/cuda/%.cu,$(B)/emu/%.cu.o,$(wildcard trainer/cuda/*.cu))
# The plugin's C is compiled once for both; with a sanitizer there is no plugin.
EMU_HOST := $(if $(SAN),$(B)/emu,build/cuda)
EMU_O   := $(EMU_CU) $(B)/emu/rows/kernels_format.cu.o $(B)/emu/grid.o $(B)/emu/traffic.o $(patsubst %,$(EMU_HOST)/%.o,calls_cuda calls_token conv_cuda engines_cuda linear_cuda dnn_graph dnn_plan)
EMU_C   := $(patsubst trainer/cuda/%.c,$(EMU_HOST)/%.o,$(wildcard trainer/cuda/*.c))
EMU_RT  := $(B)/emu/grid.o $(B)/emu/traffic.o $(patsubst tests/emu/%.c,$(B)/emu/%.o,$(wildcard tests/emu/cudart*.c))
EMU_DNN := $(patsubst tests/emu/%.c,$(B)/emu/%.o,$(wildcard tests/emu/fake_cudnn*.c))
CUDA_MAJOR := $(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
EMU      = $(addprefix $(B)/tests/emu/,nnpipe libnnpipe-cuda.so libnnpipe-cuda-rows.so libcudnn.so.9 libcublasLt.so.$(CUDA_MAJOR) libnccl.so.2) \
           $(if $(SAN),,$(addprefix $(B)/tests/emu/fma/,nnpipe libnnpipe-cuda.so kernel_tests))
PLANS    = $(if $(SAN),,$(B)/tests/cuda/plans $(B)/tests/cuda/traffic)
CXXFLAGS = -std=c++17 $(TEST_OPT) -Wall -Wextra -Wno-unused-parameter -fno-strict-aliasing -ffp-contract=off -pthread -fPIC -I. $(CUDA_FLAGS) \
           $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -DNP_SAN -fno-sanitize-recover=undefined)
$(patsubst %,$(B)/tests/kernel/test_kernels_%.o,cuda format rows stats token update) $(B)/tests/kernel/kernel_case_cuda.o $(B)/tests/unit/test_engines.o: CFLAGS += -DNP_EMULATED_CUDA $(CUDA_FLAGS)
# What the emulation spends its time in: switches of its threads, and convolutions.
$(B)/emu/grid.o: TEST_OPT := $(if $(SAN),$(OPT),-O2 -g1)
$(B)/emu/fake_%.o: OPT := $(if $(SAN),$(OPT),-O3 -g1)
$(B)/emu/fake_%.o $(B)/emu/cudart%.o: HARDEN =
$(B)/emu/%.cu.o: trainer/cuda/%.cu $(B)/flags
	@mkdir -p $(@D)
	$(CXX) -x c++ $(CXXFLAGS) -MMD -MP -c -o $@ $<
# The kernels again, with fused multiply-adds as nvcc contracts them (tests/cuda/fma.sh), and with a call at each
# access of memory, which tests/emu/traffic.c counts (tests/cuda/traffic.sh). nvcc also builds kernels_rows without
# the former.
FMA_CU  := $(patsubst $(B)/emu/%,$(B)/emu/fma/%,$(filter-out %/kernels_rows.cu.o,$(EMU_CU))) $(B)/emu/kernels_rows.cu.o
$(B)/emu/fma/%.cu.o: trainer/cuda/%.cu $(B)/flags
	@mkdir -p $(@D)
	$(CXX) -x c++ $(CXXFLAGS) -mfma -ffp-contract=fast -fexpensive-optimizations -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -MMD -MP -c -o $@ $<
$(B)/tests/emu/fma/libnnpipe-cuda.so: $(FMA_CU) $(EMU_C) $(B)/tests/emu/libcudart-emu.so
	@mkdir -p $(@D)
	$(EMU_LINK) -Wl,-z,nodelete -lstdc++
$(B)/tests/emu/fma/nnpipe: $(NNPIPE)
	@mkdir -p $(@D) && cp $< $@
$(B)/emu/%.o: tests/emu/%.cc $(B)/flags
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -MMD -MP -c -o $@ $<
$(B)/emu/%.o: trainer/cuda/%.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CUDA_FLAGS) -fPIC -MMD -MP -c -o $@ $<
$(B)/emu/%.o: tests/emu/%.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CUDA_FLAGS) -fPIC -MMD -MP -c -o $@ $<
EMU_LINK = $(CC) -shared -pthread $(if $(SAN),-fsanitize=$(SAN)) -Wl,-soname,$(@F) -Wl,-rpath,$(abspath $(B)/tests/emu) -o $@ $^
$(B)/tests/emu/libcudart-emu.so: $(EMU_RT)
	@mkdir -p $(@D)
	$(EMU_LINK) -lstdc++
$(B)/tests/emu/libnnpipe-cuda.so: $(EMU_CU) $(EMU_C) $(B)/tests/emu/libcudart-emu.so
	@mkdir -p $(@D)
	$(EMU_LINK) -Wl,-z,nodelete -lstdc++
EMU_ROWS = $(addprefix $(EMU_HOST)/,rows/rows_cuda.o rows/buffers_cuda.o gpu_cuda.o) $(B)/emu/rows/kernels_format.cu.o
$(B)/tests/emu/libnnpipe-cuda-rows.so: $(EMU_ROWS) $(ROWS_BASE) $(B)/tests/emu/libcudart-emu.so
	@mkdir -p $(@D)
	$(EMU_LINK) -Wl,-z,nodelete -Wl,--version-script=$(ROWS_MAP) -lstdc++
$(B)/tests/emu/libcudnn.so.9: $(EMU_DNN) $(B)/tests/emu/libcudart-emu.so
	@mkdir -p $(@D)
	$(EMU_LINK)
$(B)/tests/emu/libcublasLt.so.$(CUDA_MAJOR): $(B)/emu/fake_cublaslt.o $(B)/tests/emu/libcudart-emu.so
	@mkdir -p $(@D)
	$(EMU_LINK)
$(B)/tests/emu/libnccl.so.2: $(B)/emu/fake_nccl.o $(B)/tests/emu/libcudart-emu.so
	@mkdir -p $(@D)
	$(EMU_LINK)
$(B)/tests/emu/nnpipe: $(NNPIPE)
	@mkdir -p $(@D) && cp $< $@
$(B)/tests/cuda/traffic: tests/cuda/traffic.c $(B)/tests/kernel/made_graphs.o $(LIB) $(B)/tests/emu/fma/libnnpipe-cuda.so
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CUDA_FLAGS) $(LDFLAGS) -o $@ $< $(B)/tests/kernel/made_graphs.o -Wl,--whole-archive $(LIB) \
	    -Wl,--no-whole-archive $(B)/tests/emu/fma/libnnpipe-cuda.so -Wl,-rpath,$(abspath $(B)/tests/emu/fma):$(abspath $(B)/tests/emu) \
	    -Wl,-rpath-link,$(B)/tests/emu $(LDLIBS) -lcriterion
$(B)/tests/cuda/plans: tests/cuda/plans.c $(B)/tests/kernel/made_graphs.o $(LIB) libnnpipe-cuda.so tests/emu/stub_driver.c
	@mkdir -p $(@D)/stub
	$(CC) -shared -fPIC -O1 -o $(@D)/stub/libcuda.so.1 tests/emu/stub_driver.c
	$(CC) $(CFLAGS) $(CUDA_FLAGS) $(LDFLAGS) -o $@ $< $(B)/tests/kernel/made_graphs.o -Wl,--whole-archive $(LIB) \
	    -Wl,--no-whole-archive ./libnnpipe-cuda.so -Wl,-rpath,'$$ORIGIN/../../..' $(LDLIBS) -lcriterion
endif

# A third I/O backend and a slower simulated device, only for tests.
SIM     := $(patsubst tests/%.c,$(B)/tests/%.o,$(wildcard tests/sim/*.c))
SIMULATE = $(addprefix -Wl$(comma)--wrap=,np_io_open np_device_open)
T       := $(patsubst tests/%.c,$(B)/tests/%.o,$(wildcard tests/unit/*.c tests/kernel/*.c)) $(SIM)
UNIT     = $(B)/tests/unit_tests
$(UNIT): $(T) $(EMU_O) $(LIB)
	$(CC) $(LDFLAGS) -o $@ $(T) $(EMU_O) $(LIB) $(LDLIBS) $(if $(EMU_O),-lstdc++) $(if $(SAN),,-lcriterion)
$(B)/tests/emu/fma/kernel_tests: $(T) $(FMA_CU) $(filter-out $(EMU_CU),$(EMU_O)) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lstdc++ $(if $(SAN),,-lcriterion)
# Tests make the n-th np_try_* fail: tests/unit/made_memory.h.
# Criterion starts the program again for each test: without -rdynamic it loads faster.
$(UNIT) $(B)/tests/emu/fma/kernel_tests: LDFLAGS := $(filter-out -rdynamic,$(LDFLAGS)) $(SIMULATE) $(patsubst %,-Wl$(comma)--wrap=np_%,try_alloc try_array try_strdup try_format try_grow hold)
unit: $(UNIT)
	$(UNIT)

# One target for each parser, with a corpus; tests/fuzz/fuzz.sh runs them.
FUZZ_O  := $(patsubst tests/%.c,$(B)/tests/%.o,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ    := $(filter-out %/fuzz_driver,$(FUZZ_O:.o=))
.SECONDARY: $(FUZZ_O)
$(FUZZ): %: %.o $(B)/tests/fuzz/fuzz_driver.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $< $(B)/tests/fuzz/fuzz_driver.o $(LIB) $(LDLIBS)
# The service's sockets with a simulated clock, and submissions whose check ends as the input says.
$(B)/tests/fuzz/fuzz_http: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,np_now_ns np_checker_start)
fuzz: $(FUZZ)

# The program again with planted bottlenecks, and programs that make and measure their cases.
PLANTED := $(addprefix $(B)/tests/plants/,nnpipe rate tenant hard_jpegs profile_check)
WRAPPED  = np_unzstd_frame np_decoder_open np_decoder_decode np_resize np_ring_commit write fsync
$(B)/tests/plants/nnpipe: $(B)/tests/bench/plants/wraps.o $(SIM) $(B)/daemon/main.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SIMULATE) $(addprefix -Wl$(comma)--wrap=,$(WRAPPED)) -o $@ $^ $(LDLIBS)
$(B)/tests/plants/profile_check: $(B)/tests/bench/plants/profile_check.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/tests/plants/%: $(B)/tests/bench/plants/%.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ljpeg
.PHONY: plants
plants: $(NNPIPE) $(PLANTED)

# Draws reports of made-up profiles, for tests in a browser.
RENDER   = $(B)/tests/flow/render_profile
$(RENDER): $(B)/tests/flow/render_profile.o $(B)/tests/unit/made_profile.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Submits, pauses, resumes and stops runs of a service in cycles over one connection.
CYCLES   = $(B)/tests/flow/service_cycles
$(CYCLES): $(B)/tests/flow/service_cycles.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The program again, which writes down the rows that a run takes, kills itself while it writes entries or at the end
# of a run, and flips a bit of its weights.
ROWS     = $(B)/tests/flow/nnpipe
ROWS_O  := $(addprefix $(B)/tests/flow/,rows_log.o kill_entries.o flip_bit.o end_rank.o)
$(ROWS): $(ROWS_O) $(B)/daemon/main.o $(LIB)
	$(CC) $(LDFLAGS) $(addprefix -Wl$(comma)--wrap=,np_ring_new np_ring_take np_optim_update np_comm_wait_end write pwrite rename unlink) -o $@ $^ $(LDLIBS)

TESTED   = all python $(UNIT) $(FUZZ) $(PLANS) $(EMU) $(PLANTED) $(RENDER) $(CYCLES) $(ROWS)
# Without this make's flags and job server: tests run their own make.
BY_ITSELF = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL CUDA_ARCHS="$(CUDA_ARCHS)"
test: all python $(UNIT)
	@$(BY_ITSELF) sh tests/run.sh $(B) quick
test-all: $(TESTED)
	@$(BY_ITSELF) sh tests/run.sh $(B) all
test-long: $(TESTED)
	@$(BY_ITSELF) sh tests/run_long.sh $(B)
demo: all
	@sh scripts/demo.sh --built
check:
	@sh scripts/check.sh
bench: all
	@sh tests/bench/run.sh

dist: all
	@sh scripts/dist.sh
wheel: $(SHARED) $(if $(NVCC),$(if $(SAN),,libnnpipe-cuda-rows.so))
	@sh scripts/wheel.sh

docs/CONFIG.md: REFERENCE = config-reference
docs/SERVICE_CONFIG.md: REFERENCE = service-reference
docs/CONFIG.md docs/SERVICE_CONFIG.md: $(if $(SAN),,$(NNPIPE))
	$(if $(SAN),@true,./nnpipe help $(REFERENCE) > $@.new && if cmp -s $@.new $@; then rm $@.new && touch $@; else mv $@.new $@; fi)

# An existing file in /etc is never overwritten.
SYSCONFDIR = /etc
UNITS    = $(DESTDIR)$(PREFIX)/lib/systemd
install: all
	install -Dm755 nnpipe $(DESTDIR)$(PREFIX)/bin/nnpipe
	test ! -e libnnpipe-cuda.so || install -Dm755 libnnpipe-cuda.so $(DESTDIR)$(PREFIX)/lib/nnpipe/libnnpipe-cuda.so
	test ! -e libnnpipe-cuda-rows.so || install -Dm755 libnnpipe-cuda-rows.so $(DESTDIR)$(PREFIX)/lib/nnpipe/libnnpipe-cuda-rows.so
	install -Dm644 libnnpipe.so.1 $(DESTDIR)$(PREFIX)/lib/libnnpipe.so.1
	ln -sf libnnpipe.so.1 $(DESTDIR)$(PREFIX)/lib/libnnpipe.so
	install -Dm644 loader/nnpipe.h $(DESTDIR)$(PREFIX)/include/nnpipe.h
	mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(shell sed -n 's/.*NP_VERSION "\(.*\)"/\1/p' loader/base/version.h)|' scripts/nnpipe.pc >$(DESTDIR)$(PREFIX)/lib/pkgconfig/nnpipe.pc
	chmod 644 $(DESTDIR)$(PREFIX)/lib/pkgconfig/nnpipe.pc
	install -Dm644 docs/nnpipe.1 $(DESTDIR)$(PREFIX)/share/man/man1/nnpipe.1
	install -Dm644 docs/nnpipe-daemon.8 $(DESTDIR)$(PREFIX)/share/man/man8/nnpipe-daemon.8
	install -Dm644 scripts/nnpipe.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/nnpipe
	for c in configs/*.yaml; do install -Dm644 $$c $(DESTDIR)$(PREFIX)/share/nnpipe/$$c; done
	for d in README.md docs/*.md docs/*.png docs/example.c docs/openapi.json; do install -Dm644 $$d $(DESTDIR)$(PREFIX)/share/doc/nnpipe/$${d##*/}; done
	for u in nnpipe-box.service nnpipe-box.socket; do sh scripts/systemd/put.sh $(PREFIX) $$u $(UNITS)/system/$$u; done
	for u in nnpipe.service nnpipe.socket nnpipe-worker@.service nnpipe-ended@.service; do sh scripts/systemd/put.sh $(PREFIX) $$u $(UNITS)/user/$$u; done
	sh scripts/systemd/put.sh $(PREFIX) sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/nnpipe.conf
	sh scripts/systemd/put.sh $(PREFIX) tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/nnpipe.conf
	test -e $(DESTDIR)$(SYSCONFDIR)/nnpipe/service.yaml || install -Dm644 scripts/systemd/service.yaml $(DESTDIR)$(SYSCONFDIR)/nnpipe/service.yaml

deb: all
	@sh scripts/deb/build.sh

clean:
	rm -rf build build-* dist nnpipe libnnpipe.so libnnpipe.so.1 libnnpipe-cuda.so libnnpipe-cuda-rows.so

-include $(RENDER).d $(CYCLES).d $(ROWS_O:.o=.d) $(B)/tests/bench/plants/wraps.d $(EMU_O:.o=.d) $(EMU_C:.o=.d) $(EMU_ROWS:.o=.d) build/cuda/rows/rows_cuda.d build/cuda/rows/buffers_cuda.d build/cuda/rows/kernels_format.cu.d $(FMA_CU:.o=.d) $(EMU_RT:.o=.d) $(EMU_DNN:.o=.d) $(B)/emu/fake_cublaslt.d $(B)/emu/fake_nccl.d $(CUDA_OBJS:.o=.d) $(OBJS:.o=.d) $(T:.o=.d) $(FUZZ_O:.o=.d)
