/* torch's generator: numbers of torch 2.15 for seeds, both ways of rounding, and its states. */
#include <string.h>

#include <zlib.h>

#include "loader/base/torch_rng.h"
#include "tests/test.h"

/* torch.manual_seed(seed), then six times torch.empty(1).uniform_(0.08, 1), three times
 * uniform_(-A, A) with A = log(4 / 3), and torch.randint(0, n, (1,)) for each n below. [0]: with
 * ATEN_CPU_CAPABILITY=default; [1]: on a CPU with AVX-512. */
static const struct golden {
    uint64_t seed;
    float unit[2][6], angle[2][3];
    int64_t below[7];
} golden[] = {
    {0u,
        {{0x1.12b77ap-1f, 0x1.92d2bcp-1f, 0x1.4a8bbp-3f, 0x1.9c9b48p-3f, 0x1.73897p-2f,
             0x1.53a2ecp-1f},
            {0x1.12b77ap-1f, 0x1.92d2bep-1f, 0x1.4a8baep-3f, 0x1.9c9b48p-3f, 0x1.738972p-2f,
                0x1.53a2ecp-1f}},
        {{-0x1.758c8p-8f, 0x1.d32624p-3f, -0x1.a248ep-6f},
            {-0x1.758c66p-8f, 0x1.d32624p-3f, -0x1.a248e2p-6f}},
        {0, 1, 0, 24, 399, 22524, 243580376}},
    {1u,
        {{0x1.8dd5b4p-1f, 0x1.590dap-2f, 0x1.cda4bcp-2f, 0x1.830698p-1f, 0x1.b605b4p-4f,
             0x1.a1b9b4p-1f},
            {0x1.8dd5b6p-1f, 0x1.590d9ep-2f, 0x1.cda4bcp-2f, 0x1.83069ap-1f, 0x1.b605b4p-4f,
                0x1.a1b9b4p-1f}},
        {{-0x1.e4d4c8p-5f, 0x1.2bbcf4p-3f, 0x1.479ecp-5f},
            {-0x1.e4d4c4p-5f, 0x1.2bbcf6p-3f, 0x1.479ec4p-5f}},
        {0, 0, 6, 4, 943, 21111, 192182790}},
    {42u,
        {{0x1.c88b4ap-1f, 0x1.d7f6a6p-1f, 0x1.ba9bb8p-2f, 0x1.ecd4d2p-1f, 0x1.c1c0e4p-2f,
             0x1.440178p-1f},
            {0x1.c88b4cp-1f, 0x1.d7f6a6p-1f, 0x1.ba9bbap-2f, 0x1.ecd4d2p-1f, 0x1.c1c0e2p-2f,
                0x1.440178p-1f}},
        {{-0x1.1ed78p-3f, 0x1.5a02d4p-3f, 0x1.03b0cap-2f},
            {-0x1.1ed78p-3f, 0x1.5a02d4p-3f, 0x1.03b0ccp-2f}},
        {0, 0, 5, 14, 954, 55963, 91090297}},
    {4294967295u,
        {{0x1.fd144ap-1f, 0x1.361172p-1f, 0x1.3574e2p-1f, 0x1.011cecp-3f, 0x1.fcb86ap-1f,
             0x1.84b51ap-1f},
            {0x1.fd144cp-1f, 0x1.361172p-1f, 0x1.3574e4p-1f, 0x1.011cecp-3f, 0x1.fcb86ap-1f,
                0x1.84b51ap-1f}},
        {{0x1.aa5ff8p-4f, -0x1.06549ep-3f, 0x1.b4425p-5f},
            {0x1.aa5ffap-4f, -0x1.06549ep-3f, 0x1.b4424ap-5f}},
        {0, 1, 0, 16, 323, 51620, 50800853}},
    {4294967303u,
        {{0x1.24ee1p-1f, 0x1.0d356p-2f, 0x1.5f799ep-1f, 0x1.5e61bp-1f, 0x1.2d3334p-2f,
             0x1.e25ca4p-2f},
            {0x1.24ee1p-1f, 0x1.0d356p-2f, 0x1.5f799ep-1f, 0x1.5e61bp-1f, 0x1.2d3334p-2f,
                0x1.e25ca2p-2f}},
        {{-0x1.59276ap-3f, 0x1.31bfa8p-4f, -0x1.3d6888p-4f},
            {-0x1.59276ap-3f, 0x1.31bfa4p-4f, -0x1.3d6886p-4f}},
        {0, 0, 6, 5, 217, 57085, 190577200}},
    {3122306864379792082u,
        {{0x1.518db8p-1f, 0x1.ab5f48p-4f, 0x1.6cc6fp-2f, 0x1.00028ap-1f, 0x1.294a5cp-2f,
             0x1.0601b6p-2f},
            {0x1.518db8p-1f, 0x1.ab5f48p-4f, 0x1.6cc6fp-2f, 0x1.00028ap-1f, 0x1.294a5cp-2f,
                0x1.0601b6p-2f}},
        {{-0x1.90d34p-7f, -0x1.bcb6cp-7f, 0x1.65d724p-3f},
            {-0x1.90d35p-7f, -0x1.bcb6bcp-7f, 0x1.65d726p-3f}},
        {0, 0, 6, 21, 463, 51147, 111109592}},
    {18446744073709551615u,
        {{0x1.fd144ap-1f, 0x1.361172p-1f, 0x1.3574e2p-1f, 0x1.011cecp-3f, 0x1.fcb86ap-1f,
             0x1.84b51ap-1f},
            {0x1.fd144cp-1f, 0x1.361172p-1f, 0x1.3574e4p-1f, 0x1.011cecp-3f, 0x1.fcb86ap-1f,
                0x1.84b51ap-1f}},
        {{0x1.aa5ff8p-4f, -0x1.06549ep-3f, 0x1.b4425p-5f},
            {0x1.aa5ffap-4f, -0x1.06549ep-3f, 0x1.b4424ap-5f}},
        {0, 1, 0, 16, 323, 51620, 50800853}},
};
static const int64_t limits[7] = {1, 2, 7, 33, 1000, 65537, (1 << 28) - 1};
#define A 0.28768208622932434f

Test(torch_rng, draws_are_those_of_torch_for_each_seed_and_rounding)
{
    for (size_t g = 0; g < sizeof(golden) / sizeof(*golden); g++)
        for (int fused = 0; fused <= 1; fused++) {
            const struct golden *want = &golden[g];
            struct np_torch_rng rng;

            np_torch_seed(&rng, want->seed);
            for (int i = 0; i < 6; i++)
                cr_assert_eq(np_torch_uniform(&rng, 0.08f, 1.0f, fused), want->unit[fused][i],
                    "seed %llu, %d", (unsigned long long)want->seed, i);
            for (int i = 0; i < 3; i++)
                cr_assert_eq(np_torch_uniform(&rng, -A, A, fused), want->angle[fused][i],
                    "seed %llu, %d", (unsigned long long)want->seed, i);
            for (int i = 0; i < 7; i++)
                cr_assert_eq(np_torch_below(&rng, limits[i]), want->below[i], "seed %llu, %d",
                    (unsigned long long)want->seed, i);
        }
}

static uint32_t crc_of_draws(float from, bool fused)
{
    struct np_torch_rng rng;
    float draws[3000];

    np_torch_seed(&rng, 5);
    for (int i = 0; i < 3000; i++)
        draws[i] = np_torch_uniform(&rng, from, 1, fused);
    return (uint32_t)crc32(0, (const uint8_t *)draws, sizeof(draws));
}

/* torch.manual_seed(5), 3000 times uniform_(0, 1), then the same from 0.08: the words are made anew
 * four times. */
Test(torch_rng, three_thousand_draws_are_those_of_torch)
{
    cr_expect_eq(crc_of_draws(0, false), 867588119u);
    cr_expect_eq(crc_of_draws(0, true), 867588119u);
    cr_expect_eq(crc_of_draws(0.08f, false), 3445235331u);
    cr_expect_eq(crc_of_draws(0.08f, true), 2071122849u);
}

/* --- states ----------------------------------------------------------------------------------- */

#define WORDS 24 /* where the words begin, 8 bytes each */

/* After torch.manual_seed(9) and nr_draws draws: CRC-32 of torch.get_rng_state(), and the next two
 * of uniform_(0, 1). */
static const struct {
    int nr_draws, next;
    uint32_t crc;
    float draws[2];
} states[] = {
    {0, 0, 2993401170u, {0.6557844877243042f, 0.30202269554138184f}},
    {1, 1, 631672996u, {0.30202269554138184f, 0.4798964262008667f}},
    {100, 100, 1560021222u, {0.6618789434432983f, 0.9700280427932739f}},
    {623, 623, 2641487661u, {0.7953504920005798f, 0.9512508511543274f}},
    {624, 624, 2542036499u, {0.9512508511543274f, 0.7528605461120605f}},
    {625, 1, 3217007769u, {0.7528605461120605f, 0.6988627314567566f}},
    {1248, 624, 228413998u, {0.5952631235122681f, 0.1865837574005127f}},
};
#define NR_STATES (sizeof(states) / sizeof(*states))

static void put(uint8_t *state, size_t at, uint64_t value, size_t bytes)
{
    memcpy(state + at, &value, bytes);
}

/* The bytes that torch has in state s: the CRC shows that each is torch's. */
static struct np_torch_rng make_state(size_t s, uint8_t state[NP_TORCH_STATE_BYTES])
{
    struct np_torch_rng rng;

    np_torch_seed(&rng, 9);
    for (int i = 0; i < states[s].nr_draws; i++)
        np_torch_uniform(&rng, 0, 1, false);
    memset(state, 0, NP_TORCH_STATE_BYTES);
    put(state, 0, 9, 8);
    put(state, 8, states[s].next ? (uint64_t)(625 - states[s].next) : 1, 4); /* left */
    put(state, 12, 1, 4);                                                    /* seeded */
    put(state, 16, (uint64_t)states[s].next, 8);
    for (size_t i = 0; i < NP_TORCH_WORDS; i++)
        put(state, WORDS + 8 * i, rng.words[i], 8);
    cr_assert_eq(crc32(0, state, NP_TORCH_STATE_BYTES), states[s].crc, "state %zu", s);
    return rng;
}

Test(torch_rng, a_state_of_torch_is_read_and_continued)
{
    for (size_t s = 0; s < NR_STATES; s++) {
        uint8_t state[NP_TORCH_STATE_BYTES];
        struct np_torch_rng rng;

        make_state(s, state);
        memset(&rng, 0xa5, sizeof(rng));
        cr_assert(np_torch_read(&rng, state, sizeof(state)));
        for (int i = 0; i < 2; i++)
            cr_assert_eq(np_torch_uniform(&rng, 0, 1, true), states[s].draws[i], "state %zu", s);
    }
}

/* From each state to each later one, as if torch had drawn. */
Test(torch_rng, a_state_is_written_as_torch_has_it)
{
    for (size_t from = 0; from < NR_STATES; from++)
        for (size_t to = from; to < NR_STATES; to++) {
            uint8_t state[NP_TORCH_STATE_BYTES], want[NP_TORCH_STATE_BYTES];
            struct np_torch_rng rng;

            make_state(to, want);
            make_state(from, state);
            cr_assert(np_torch_read(&rng, state, sizeof(state)));
            for (int i = states[from].nr_draws; i < states[to].nr_draws; i++)
                np_torch_below(&rng, 10);
            np_torch_write(&rng, state);
            cr_assert_eq(crc32(0, state, sizeof(state)), states[to].crc, "%zu to %zu", from, to);
        }
}

/* Numbers of a normal distribution that torch has kept are not ours to change. */
Test(torch_rng, what_else_a_state_has_is_kept)
{
    uint8_t state[NP_TORCH_STATE_BYTES], before[NP_TORCH_STATE_BYTES];
    struct np_torch_rng rng;

    make_state(2, state);
    for (size_t at = WORDS + 8 * NP_TORCH_WORDS; at < sizeof(state); at++)
        state[at] = (uint8_t)at;
    memcpy(before, state, sizeof(state));
    cr_assert(np_torch_read(&rng, state, sizeof(state)));
    np_torch_below(&rng, 10);
    np_torch_write(&rng, state);
    cr_expect_neq(memcmp(state, before, sizeof(state)), 0);
    cr_expect_arr_eq(state, before, 8); /* the seed */
    cr_expect_arr_eq(state + WORDS + 8 * NP_TORCH_WORDS, before + WORDS + 8 * NP_TORCH_WORDS,
        sizeof(state) - WORDS - 8 * NP_TORCH_WORDS);
}

Test(torch_rng, what_is_no_state_is_refused)
{
    static const struct {
        size_t at, bytes;
        uint64_t value;
    } changes[] = {
        {8, 4, 0}, {8, 4, 625}, {8, 4, UINT32_MAX},                          /* left */
        {16, 8, 625}, {16, 8, 99}, {16, 8, UINT64_MAX}, {16, 8, 1ull << 32}, /* next */
        {WORDS + 8 * 300, 8, 1ull << 32},                                    /* a word */
    };
    uint8_t state[NP_TORCH_STATE_BYTES];
    struct np_torch_rng rng;

    make_state(2, state);
    cr_assert(np_torch_read(&rng, state, sizeof(state)));
    cr_expect_not(np_torch_read(&rng, state, sizeof(state) - 1));
    cr_expect_not(np_torch_read(&rng, state, 16)); /* as a CUDA generator has */
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        make_state(2, state);
        put(state, changes[i].at, changes[i].value, changes[i].bytes);
        cr_expect_not(np_torch_read(&rng, state, sizeof(state)), "change %zu", i);
    }
}
