/* What torch, timm, Keras and other trainers call a thing that has another name here. Any thread. */
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

#include "loader/base/alias.h"

/* Words are compared without case, '-' and '_'. A word may have several names; "" says that the word is
 * known and there is nothing like it. */
struct alias {
    const char *word, *name;
};

/* Keys of a config, by their whole path. */
static const struct alias key_aliases[] = {
    {"batch", "loader.batch"},
    {"batchsize", "loader.batch"},
    {"bs", "loader.batch"},
    {"numworkers", "loader.readers"},
    {"workers", "loader.readers"},
    {"readers", "loader.readers"},
    {"prefetchfactor", "loader.prefetch"},
    {"pinmemory", ""},
    {"cache", "loader.cache"},
    {"shuffle", "loader.shuffle"},
    {"normalize", "loader.normalize"},
    {"mean", "loader.normalize"},
    {"std", "loader.normalize"},
    {"augment", "loader.augment"},
    {"augmentation", "loader.augment"},
    {"augmentations", "loader.augment"},
    {"transform", "loader.augment"},
    {"transforms", "loader.augment"},
    {"lr", "optimizer.sgd.lr"},
    {"learningrate", "optimizer.sgd.lr"},
    {"momentum", "optimizer.sgd.momentum"},
    {"weightdecay", "optimizer.sgd.weight_decay"},
    {"wd", "optimizer.sgd.weight_decay"},
    {"nesterov", "optimizer.sgd.nesterov"},
    {"labelsmoothing", "loss.cross_entropy.label_smoothing"},
    {"smoothing", "loss.cross_entropy.label_smoothing"},
    {"criterion", "loss"},
    {"optim", "optimizer"},
    {"scheduler", "schedule"},
    {"lrscheduler", "schedule"},
    {"epochs", "train.epochs"},
    {"numepochs", "train.epochs"},
    {"maxepochs", "train.epochs"},
    {"nepochs", "train.epochs"},
    {"steps", "train.steps"},
    {"maxsteps", "train.steps"},
    {"maxiters", "train.steps"},
    {"iterations", "train.steps"},
    {"gradaccumsteps", "train.accumulate"},
    {"gradientaccumulationsteps", "train.accumulate"},
    {"accumulategradbatches", "train.accumulate"},
    {"accumulate", "train.accumulate"},
    {"clipgrad", "train.clip_norm"},
    {"clipgradnorm", "train.clip_norm"},
    {"gradclip", "train.clip_norm"},
    {"maxgradnorm", "train.clip_norm"},
    {"clipnorm", "train.clip_norm"},
    {"evalevery", "train.eval_every"},
    {"deterministic", "train.deterministic"},
    {"tf32", "train.tf32"},
    {"threads", "train.threads"},
    {"saveevery", "checkpoint.every"},
    {"keep", "checkpoint.keep"},
    {"seed", "seed"},
    {"randomseed", "seed"},
    {"precision", "precision"},
    {"dtype", "precision"},
    {"amp", "precision"},
    {"fp16", "precision"},
    {"bf16", "precision"},
    {"outputdir", "runs"},
    {"savedir", "runs"},
    {"logdir", "runs"},
    {"runs", "runs"},
    {"experiment", "name"},
    {"data", "data.train.path"},
    {"datadir", "data.train.path"},
    {"dataset", "data"},
    {"valsplit", "data.split"},
    {"validationsplit", "data.split"},
    {"split", "data.split"},
    {"network", "model"},
    {"arch", "model"},
    {"architecture", "model"},
    {NULL, NULL},
};

static const struct alias other_aliases[] = {
    /* keys within an object */
    {"warmupepochs", "warmup"},
    {"warmupsteps", "warmup"},
    {"warmupiters", "warmup"},
    {"root", "path"},
    {"dir", "path"},
    {"folder", "path"},
    {"validation", "val"},
    {"valid", "val"},
    /* flags */
    {"pretrained", "--weights"},
    {"checkpoint", "--weights"},
    {"gpu", "--device"},
    {"gpus", "--device"},
    {"cuda", "--device"},
    /* augmentation */
    {"horizontalflip", "flip"},
    {"randomhorizontalflip", "flip"},
    {"hflip", "flip"},
    {"randomflip", "flip"},
    {"crop", "random_crop"},
    {"scale", "resize"},
    {"rrc", "random_resized_crop"},
    {"verticalflip", ""},
    {"vflip", ""},
    {"totensor", ""},
    {"rotate", ""},
    {"rotation", ""},
    {"randomrotation", ""},
    /* precisions, schedules */
    {"float32", "f32"},
    {"fp32", "f32"},
    {"float", "f32"},
    {"float16", "f16"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"bfloat16", "bf16"},
    {"step", "multistep"},
    {"steplr", "multistep"},
    {"cosineannealing", "cosine"},
    {"cosineannealinglr", "cosine"},
    {"onecyclelr", "one_cycle"},
    /* layers and their keys */
    {"conv2d", "conv"},
    {"convolution", "conv"},
    {"dense", "linear"},
    {"fc", "linear"},
    {"fullyconnected", "linear"},
    {"batchnorm2d", "batchnorm"},
    {"batchnormalization", "batchnorm"},
    {"bn", "batchnorm"},
    {"maxpool2d", "maxpool"},
    {"maxpooling2d", "maxpool"},
    {"avgpool2d", "avgpool"},
    {"averagepooling2d", "avgpool"},
    {"adaptiveavgpool2d", "global_avgpool"},
    {"globalaveragepooling2d", "global_avgpool"},
    {"gap", "global_avgpool"},
    {"globalpool", "global_avgpool"},
    {"residual", "add"},
    {"concatenate", "concat"},
    {"gelu", ""},
    {"elu", ""},
    {"selu", ""},
    {"celu", ""},
    {"prelu", ""},
    {"silu", ""},
    {"swish", ""},
    {"relu6", ""},
    {"leakyrelu", ""},
    {"softmax", ""},
    {"layernorm", ""},
    {"groupnorm", ""},
    {"instancenorm", ""},
    {"upsample", ""},
    {"attention", ""},
    {"kernelsize", "kernel"},
    {"padding", "pad"},
    {"strides", "stride"},
    {"filters", "out"},
    {"channels", "out"},
    {"outchannels", "out"},
    {"outfeatures", "out"},
    {"units", "out"},
    {"usebias", "bias"},
    {"p", "rate"},
    {"frozen", ""},
    {"freeze", ""},
    {"trainable", ""},
    {"requiresgrad", ""},
    {NULL, NULL},
};

static bool same_word(const char *word, const char *plain)
{
    for (; *word; word++) {
        if (*word == '-' || *word == '_')
            continue;
        if (tolower((unsigned char)*word) != *plain)
            return false;
        plain++;
    }
    return *plain == '\0';
}

/* The index-th name of the word in a table; index goes down by those before it. */
static const char *find(const struct alias *aliases, const char *word, int *index)
{
    for (const struct alias *row = aliases; row->word; row++)
        if (same_word(word, row->word) && (*index)-- == 0)
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
