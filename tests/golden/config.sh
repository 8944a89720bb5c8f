#!/bin/sh
# Configs in, exact text out: every bad config and its messages, and every shipped config in
# normal form, which parses back to itself.
. "$(dirname "$0")/../lib.sh"
here=$ROOT/tests/golden

# refused NAME: check prints exactly NAME.txt and ends with 2
refused() {
    cd "$here/bad_configs" || return 1
    "$NNPIPE" check "$1.yaml" >"$TMP/got.txt" 2>&1
    code=$?
    [ $code -eq 2 ] || { echo "exit $code, not 2"; return 1; }
    diff "$1.txt" "$TMP/got.txt"
}
for config in "$here"/bad_configs/*.yaml; do
    name=$(basename "$config" .yaml)
    t "bad config $name is refused with its messages" refused "$name"
done

# the mistakes of check are those of train, which writes nothing before it has said them
train_refuses() {
    mkdir -p "$TMP/empty" && cd "$TMP/empty" || return 1
    "$NNPIPE" train "$here/bad_configs/54.yaml" >"$TMP/out.txt" 2>"$TMP/got.txt"
    [ $? -eq 2 ] && [ ! -s "$TMP/out.txt" ] && [ -z "$(ls -A)" ] &&
        sed "s|^$here/bad_configs/||" "$TMP/got.txt" | diff "$here/bad_configs/54.txt" -
}
t "train refuses a wrong config with all its mistakes and writes nothing" train_refuses

# round CONFIG: show prints a config that show prints the same
round() {
    "$NNPIPE" show "$1" >"$TMP/first.yaml" 2>"$TMP/err.txt" || { cat "$TMP/err.txt"; return 1; }
    "$NNPIPE" show "$TMP/first.yaml" >"$TMP/second.yaml" 2>>"$TMP/err.txt" || { cat "$TMP/err.txt"; return 1; }
    diff "$TMP/first.yaml" "$TMP/second.yaml"
}
for config in "$ROOT"/configs/*.yaml; do
    t "$(basename "$config") is checked and found right" "$NNPIPE" check --no-data "$config"
    t "$(basename "$config") in normal form parses back to itself" round "$config"
done

# total CONFIG PARAMETERS: what show --json ends with
total() { "$NNPIPE" show "$1" --json 2>/dev/null | tail -n 1 | grep -qF "{\"event\": \"total\", \"parameters\": $2,"; }
t "ResNet-18 has torchvision's 11689512 parameters" total "$ROOT/configs/resnet18.yaml" 11689512
t "ResNet-50 has torchvision's 25557032 parameters" total "$ROOT/configs/resnet50.yaml" 25557032
t "AlexNet has torchvision's 61100840 parameters" total "$ROOT/configs/alexnet.yaml" 61100840
t "airbench94 has its 1972802 parameters" total "$ROOT/configs/airbench94.yaml" 1972802
t "a blur adds nothing to ResNet-18's parameters" total "$ROOT/configs/resnet18_imagenet16.yaml" 11689512
short() { [ "$(grep -cvE '^ *(#|$)' "$1")" -le 40 ]; }
t "resnet18.yaml has at most 40 lines" short "$ROOT/configs/resnet18.yaml"
t "resnet50.yaml has at most 40 lines" short "$ROOT/configs/resnet50.yaml"

# override MESSAGE ARGS...: check says exactly that and ends with 2
override() {
    want=$1
    shift
    "$NNPIPE" check "$ROOT/configs/cnn.yaml" "$@" >"$TMP/got.txt" 2>&1
    [ $? -eq 2 ] && [ "$(cat "$TMP/got.txt")" = "$want" ] || { cat "$TMP/got.txt"; return 1; }
}
t "-o names its key" override "-o loader.batch: batch: expected a whole number, not 'x'" -o loader.batch=x
t "-o suggests the nearest key" override "-o trian: trian: unknown key in the config; did you mean 'train'?" -o trian=1
t "-o knows a list's length" override \
    "-o model.99: '99' is not an item of this list; it has items 0 to 8" -o model.99=relu
t "-o knows a key without its section" override \
    "-o epochs: epochs: unknown key in the config; did you mean 'train.epochs'?" -o epochs=1
t "-o optimizer.lr is answered with the whole key" override \
    "-o optimizer.lr: 'lr' is a key of sgd: -o optimizer.sgd.lr=0.01" -o optimizer.lr=0.01
t "-o of another optimizer's key names both ways" override \
    "-o optimizer.adamw.lr: the config's optimizer is sgd; -o optimizer.sgd.lr=0.01 changes it, \
-o 'optimizer={adamw: {lr: 0.01}}' replaces it by adamw" -o optimizer.adamw.lr=0.01
t "so does one of another schedule" override \
    "-o schedule.cosine: the config's schedule is one_cycle; -o 'schedule={cosine: {}}' replaces it by cosine" -o \
    schedule.cosine={}
t "-o with an unknown key of the optimizer names the place of its keys" override \
    "-o optimizer.foo: expected -o optimizer.sgd.KEY=VALUE; \`nnpipe help config-reference\` lists the keys of sgd" -o \
    optimizer.foo=1
other_optimizer() {
    "$NNPIPE" show "$ROOT/configs/cnn.yaml" -o 'optimizer={adamw: {lr: 0.01}}' -o optimizer.adamw.eps=1e-6 2>/dev/null |
        grep -q 'adamw: {lr: 0.01, .*eps: 1e-06'
}
t "another optimizer is taken, and then its keys" other_optimizer
length() { # length WANT SAID ARGS...: the length that show prints, and the message about it
    want=$1 said=$2
    shift 2
    "$NNPIPE" show "$ROOT/configs/cnn.yaml" "$@" >"$TMP/shown" 2>"$TMP/got.txt" || { cat "$TMP/got.txt"; return 1; }
    grep -A 9 '^train:' "$TMP/shown" | tr -d '{,' | grep -oE '(epochs|steps): [0-9]+' >"$TMP/length"
    [ "$(cat "$TMP/length")" = "$want" ] && {
        [ -z "$said" ] || grep -qF -- "$said" "$TMP/got.txt"
    } || {
        cat "$TMP/length" "$TMP/got.txt"
        return 1
    }
}
t "-o train.steps replaces the file's epochs" length "steps: 7" \
    "-o train.steps replaces train.epochs in" -o train.steps=7
t "-o train.epochs=0 with steps still works" length "steps: 7" "" -o train.epochs=0 -o train.steps=7
t "-o train.epochs changes the file's" length "epochs: 2" "" -o train.epochs=2
t "epochs and steps by -o are a mistake" override \
    "-o train.steps: steps: there is also 'epochs'; give one of the two" -o train.epochs=2 -o train.steps=7
t "-o takes a YAML value" "$NNPIPE" check --no-data "$ROOT/configs/cnn.yaml" -o \
    'loader.augment=[flip, {random_crop: {size: 32}}]' -o model.0.conv.out=8
t "-o needs a value" override "-o seed: expected KEY=VALUE" -o seed

# usage MESSAGE ARGS...: the first line on stderr, exit 2
usage() {
    want=$1
    shift
    "$NNPIPE" "$@" >/dev/null 2>"$TMP/got.txt"
    [ $? -eq 2 ] && [ "$(head -n 1 "$TMP/got.txt")" = "$want" ] || { cat "$TMP/got.txt"; return 1; }
}
t "an unknown command is answered with the nearest" usage "nnpipe: there is no command 'trian'; did you mean 'train'?" \
    trian
t "an unknown flag is answered with the nearest" usage \
    "nnpipe train: there is no flag --resum; did you mean --resume?" train x.yaml --resum
t "a command of a group is named whole" usage "nnpipe data ls: there is no flag --splt; did you mean --split?" data ls \
    --splt
t "an unknown flag that resembles none is answered with the flags there are" usage \
    "nnpipe data ls: there is no flag --foo; it takes --split, --source, --match, --json, -o KEY=VALUE: \
\`nnpipe help data ls\`" data ls --foo
t "an unknown command of a group is answered with the nearest" usage \
    "nnpipe data: there is no command 'stat'; did you mean 'stats'?" data stat
t "a group alone prints its commands" usage \
    "nnpipe bench: expected one of loader, io, feed, step; see \`nnpipe help bench\`" bench
t "a group's command without the group is found" usage "nnpipe: there is no command 'pack'; did you mean 'data pack'?" \
    pack
t "a command name of other programs is understood" usage \
    "nnpipe: there is no command 'tune'; \`nnpipe profile CONFIG --tune\` tries readers, depth, prefetch, cache \
and io" tune
t "a flag of other trainers is answered with the key" usage \
    "nnpipe train: there is no flag --epochs; it is a key of the config: -o train.epochs=2" train x.yaml --epochs 2
t "with its value, too" usage \
    "nnpipe train: there is no flag --lr; it is a key of the config: -o optimizer.sgd.lr=0.1" train x.yaml --lr=0.1
t "or with the flag" usage "nnpipe train: there is no flag --pretrained; did you mean --weights?" train x.yaml \
    --pretrained w
t "a key without -o is noticed" usage "nnpipe train: -o is missing before train.epochs=1" train x.yaml train.epochs=1
t "a flag without its value is named" usage "nnpipe train: --weights needs a value" train x.yaml --weights
t "a value that a flag does not take is named" usage "nnpipe train: --json takes no value" train x.yaml --json=1
t "eval needs weights" usage "nnpipe eval: expected CONFIG --weights FILE, or only --weights RUN" eval x.yaml
t "a missing config is named" usage "no/such.yaml: cannot be read: No such file or directory" check \
    no/such.yaml
t "a folder is not a config" usage "$ROOT/configs: cannot be read: Is a directory" check "$ROOT/configs"
t "an unknown device is named" usage \
    "--device tpu: device: expected auto, cpu, gpu, cuda:N or {sim: {...}}, not 'tpu'" train "$ROOT/configs/cnn.yaml" \
    --device tpu

stdin_config() { "$NNPIPE" check --no-data - <"$ROOT/configs/cnn.yaml"; }
t "a config can come from standard input" stdin_config
t "help knows every command" says "usage: nnpipe train CONFIG" "$NNPIPE" help train
same_help() { # same_help WORDS: all three ways to ask
    "$NNPIPE" help "$@" >"$TMP/help.1" && "$NNPIPE" "$@" --help >"$TMP/help.2" &&
        "$NNPIPE" "$@" x.yaml -h >"$TMP/help.3" || return 1
    head -n 1 "$TMP/help.1" | grep -q "^usage: nnpipe $*" && cmp "$TMP/help.1" "$TMP/help.2" &&
        cmp "$TMP/help.1" "$TMP/help.3"
}
t "--help and -h work behind a command" same_help train
t "and behind a command of a group" same_help data pack
t "so does help for each benchmark" same_help bench loader
t "help of a group lists its commands" says "  verify   CONFIG" "$NNPIPE" data --help
t "help help is the list" says "  train    CONFIG" "$NNPIPE" help help
t "version is a word, too" says "nnpipe 0" "$NNPIPE" version
unlisted() {
    ! "$NNPIPE" help | grep -qE '^  (worker|ended) ' && "$NNPIPE" help worker | grep -q "^usage: nnpipe worker"
}
t "internal commands are in no list" unlisted
reference() { "$NNPIPE" help config-reference | diff "$ROOT/docs/CONFIG.md" -; }
t "docs/CONFIG.md is the program's output" reference
settings() { "$NNPIPE" help service-reference | diff "$ROOT/docs/SERVICE_CONFIG.md" -; }
t "docs/SERVICE_CONFIG.md is the program's output" settings
t "check reads no config above 1 MiB" sh -c \
    'head -c 2000000 /dev/zero | tr "\0" a | "$0" check - 2>&1 | grep -q "at most 1 MiB"' "$NNPIPE"
[ "$failed" -eq 0 ]
