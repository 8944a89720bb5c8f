#include "loader/base/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORD 64

/* --- words of torch, Keras and other trainers ------------------------------------------------ */

/* Case, '-' and '_' do not count. A word may stand in several rows. The name "" means: the words
 * are known, and nnpipe has nothing like them. */
struct alias {
    const char *name, *words;
};

/* Keys of a config, with their whole path. */
static const struct alias key_aliases[] = {
    {"loader.batch", "batch batchsize bs"},
    {"loader.readers", "numworkers workers readers"},
    {"loader.prefetch", "prefetchfactor"},
    {"loader.cache", "cache"},
    {"loader.shuffle", "shuffle"},
    {"loader.normalize", "normalize mean std"},
    {"loader.augment", "augment augmentation augmentations transform transforms"},
    {"optimizer.sgd.lr", "lr learningrate"},
    {"optimizer.sgd.momentum", "momentum"},
    {"optimizer.sgd.weight_decay", "weightdecay wd"},
    {"optimizer.sgd.nesterov", "nesterov"},
    {"loss.cross_entropy.label_smoothing", "labelsmoothing smoothing"},
    {"loss", "criterion"},
    {"optimizer", "optim"},
    {"schedule", "scheduler lrscheduler"},
    {"train.epochs", "epochs numepochs maxepochs nepochs"},
    {"train.steps", "steps maxsteps maxiters iterations"},
    {"train.accumulate",
        "gradaccumsteps gradientaccumulationsteps accumulategradbatches accumulate"},
    {"train.clip_norm", "clipgrad clipgradnorm gradclip maxgradnorm clipnorm"},
    {"train.eval_every", "evalevery"},
    {"train.deterministic", "deterministic"},
    {"train.tf32", "tf32"},
    {"train.threads", "threads"},
    {"checkpoint.every", "saveevery"},
    {"checkpoint.keep", "keep"},
    {"seed", "seed randomseed"},
    {"precision", "precision dtype amp fp16 bf16"},
    {"runs", "outputdir savedir logdir runs"},
    {"name", "experiment"},
    {"data.train.path", "data datadir"},
    {"data", "dataset"},
    {"data.split", "valsplit validationsplit split"},
    {"model", "network arch architecture"},
    {"", "pinmemory"},
    {NULL, NULL},
};

/* Keys within a section, flags, augmentations, values, layers and their keys. */
static const struct alias other_aliases[] = {
    {"warmup", "warmupepochs warmupsteps warmupiters"},
    {"path", "root dir folder"},
    {"val", "validation valid"},
    {"--weights", "pretrained checkpoint"},
    {"--device", "gpu gpus cuda"},
    {"flip", "horizontalflip randomhorizontalflip hflip randomflip"},
    {"random_crop", "crop"},
    {"resize", "scale"},
    {"random_resized_crop", "rrc"},
    {"f32", "float32 fp32 float"},
    {"f16", "float16 fp16 half"},
    {"bf16", "bfloat16"},
    {"multistep", "step steplr"},
    {"cosine", "cosineannealing cosineannealinglr"},
    {"one_cycle", "onecyclelr"},
    {"conv", "conv2d convolution"},
    {"linear", "dense fc fullyconnected"},
    {"batchnorm", "batchnorm2d batchnormalization bn"},
    {"maxpool", "maxpool2d maxpooling2d"},
    {"avgpool", "avgpool2d averagepooling2d"},
    {"global_avgpool", "adaptiveavgpool2d globalaveragepooling2d gap globalpool"},
    {"add", "residual"},
    {"concat", "concatenate"},
    {"kernel", "kernelsize"},
    {"pad", "padding"},
    {"stride", "strides"},
    {"out", "filters channels outchannels outfeatures units"},
    {"bias", "usebias"},
    {"rate", "p"},
    {"", "verticalflip vflip totensor rotate rotation randomrotation"},
    {"", "gelu elu selu celu prelu silu swish relu6 leakyrelu softmax"},
    {"", "layernorm groupnorm instancenorm upsample attention"},
    {"", "frozen freeze trainable requiresgrad"},
    {NULL, NULL},
};

/* plain: words in lower case, separated by spaces. */
static bool has_word(const char *plain, const char *word)
{
    for (; *plain; plain += strspn(plain, " ")) {
        const char *at = word;

        for (; *at && (*at == '-' || *at == '_' || tolower((unsigned char)*at) == *plain); at++)
            plain += *at != '-' && *at != '_';
        if (!*at && (!*plain || *plain == ' '))
            return true;
        plain += strcspn(plain, " ");
    }
    return false;
}

/* The name of the word with this index in a table; NULL: *index is reduced by the names seen. */
static const char *find(const struct alias *aliases, const char *word, int *index)
{
    for (const struct alias *row = aliases; row->name; row++)
        if (has_word(row->words, word) && (*index)-- == 0)
            return row->name;
    return NULL;
}

const char *np_alias(const char *word, int index)
{
    const char *name = find(key_aliases, word, &index);

    return name ? name : find(other_aliases, word, &index);
}

const char *np_alias_key(const char *word)
{
    const char *key = find(key_aliases, word, &(int){0});

    return key && *key ? key : NULL;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Number of insertions, deletions, substitutions and swaps of neighbours that turn a into b
 * (optimal string alignment); for words up to MAX_WORD. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1], n = (int)strlen(b);

    if (strlen(a) > MAX_WORD || n > MAX_WORD)
        return INT_MAX;
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    int i = 0;
    for (; a[i]; i++) {
        const int *above = rows[i % 3], *before = rows[(i + 2) % 3];
        int *row = rows[(i + 1) % 3];

        row[0] = i + 1;
        for (int j = 0; j < n; j++) {
            row[j + 1] = least(above[j] + (a[i] != b[j]), least(above[j + 1], row[j]) + 1);
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = least(row[j + 1], before[j - 1] + 1);
        }
    }
    return rows[i % 3][n];
}

const char *np_nearest(const char *word, const char *const *words)
{
    const char *nearest = NULL;
    const int far = (int)strlen(word) / 3 + 1; /* one edit for three letters, at least one */
    int best = far < 2 ? 2 : far;

    for (; *words; words++) {
        int distance = edit_distance(word, *words);

        if (distance < best) {
            best = distance;
            nearest = *words;
        }
    }
    return nearest;
}

bool np_is_among(const char *word, const char *const *words)
{
    for (; words && *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

/* The name of the word here: one of `words`, else a name that shows where it belongs: a whole path
 * or a flag. *ret_known: another trainer has the word, so it is no typing mistake. */
static const char *alias_among(const char *word, const char *const *words, bool *ret_known)
{
    const char *name, *elsewhere = NULL;

    for (int i = 0; (name = np_alias(word, i)); i++) {
        const char *dot = strrchr(name, '.');

        *ret_known = true;
        if (*name && np_is_among(name, words))
            return name;
        if (dot && np_is_among(dot + 1, words))
            return dot + 1;
        if (dot || strncmp(name, "--", 2) == 0)
            elsewhere = name;
    }
    return elsewhere;
}

const char *np_meant(const char *word, const char *const *words)
{
    bool known = false;
    const char *name = alias_among(word, words, &known);

    if (name)
        return np_is_among(name, words) ? name : NULL;
    return known ? NULL : np_nearest(word, words);
}

void np_suggest(const char *word, const char *const *words, const char *introduction, char *text,
    size_t text_bytes)
{
    bool known = false;
    const char *name = alias_among(word, words, &known);

    if (!name && !known)
        name = np_nearest(word, words);
    if (name) {
        snprintf(text, text_bytes, "; did you mean '%s'?", name);
        return;
    }
    *text = '\0';
    if (introduction)
        snprintf(text, text_bytes, "; %s: %s", introduction, *words ? "" : "nothing");
    for (int i = 0; introduction && words[i]; i++)
        snprintf(text + strlen(text), text_bytes - strlen(text), "%s%s", i ? ", " : "", words[i]);
}
