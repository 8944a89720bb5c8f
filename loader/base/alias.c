/* What torch, timm, Keras and other trainers call a thing that has another name here. Any thread. */
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

#include "loader/base/option.h"

/* Words are compared without case, '-' and '_'. A name with a dot is a key of the config by its whole
 * path. A word may have several names; "" says that the word is known and there is nothing like it. */
static const struct alias {
    const char *word, *name;
} aliases[] = {
    /* keys */
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
    {"warmupepochs", "warmup"},
    {"warmupsteps", "warmup"},
    {"warmupiters", "warmup"},
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
    {"root", "path"},
    {"dir", "path"},
    {"folder", "path"},
    {"valsplit", "data.split"},
    {"validationsplit", "data.split"},
    {"split", "data.split"},
    {"validation", "val"},
    {"valid", "val"},
    {"network", "model"},
    {"arch", "model"},
    {"architecture", "model"},
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

const char *np_alias(const char *word, int index)
{
    for (const struct alias *row = aliases; row->word; row++)
        if (same_word(word, row->word) && index-- == 0)
            return row->name;
    return NULL;
}
