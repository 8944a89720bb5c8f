/* See weights_kind.h. */
#include "trainer/checkpoint/weights_kind.h"

#include <stdio.h>
#include <string.h>

/* Accepts the state dict inside "state_dict" or "model", as training scripts save it; clone()
 * because safetensors refuses tensors that share memory. */
#define TORCH_LINES                                                                                \
    "python3 -c 'import torch, safetensors.torch as s; d = torch.load(\"%s\", "                    \
    "map_location=\"cpu\", weights_only=True); d = d.get(\"state_dict\", d.get(\"model\", d)); "   \
    "s.save_file({k: v.clone().contiguous() for k, v in d.items() if torch.is_tensor(v)}, "        \
    "\"%.*s.safetensors\")'"

#define SAY(text)                                                                                  \
    text "; load it with its own program and save the tensors by torch's names: "                  \
         "safetensors.torch.save_file({name: tensor, ...}, \"weights.safetensors\")"

static const struct kind {
    const char *magic;
    size_t offset, bytes;
    const char *text;
} kinds[] = {
    {"\x89HDF\r\n\x1a\n", 0, 8, SAY("an HDF5 file, as Keras writes it")},
    {"TFL3", 4, 4, SAY("a TensorFlow Lite file")},
    {"GGUF", 0, 4, SAY("a GGUF file")},
    {"\x12\x01\0\0\0\0\0\0", 0, 8, SAY("a file of MXNet's parameters")},
    {"\x93NUMPY", 0, 6, SAY("a NumPy array")},
};

static bool holds(const uint8_t *start, size_t bytes, const char *word)
{
    return memmem(start, bytes, word, strlen(word)) != NULL;
}

static bool ends(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

/* torch.save() writes a zip archive whose first entry is NAME/data.pkl; before 1.6 a pickle of a
 * magic number. */
static bool is_torch(const char *name, const uint8_t *start, size_t bytes)
{
    static const char magic[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";

    return (bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0 &&
               (holds(start, bytes, "/data.pkl") || ends(name, ".pt") || ends(name, ".pth"))) ||
           (bytes >= sizeof(magic) - 1 && memcmp(start, magic, sizeof(magic) - 1) == 0);
}

/* Kinds that the first bytes alone do not identify; NULL: unknown. */
static const char *kind_of(const char *name, const uint8_t *start, size_t bytes)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (bytes >= kinds[i].offset + kinds[i].bytes &&
            memcmp(start + kinds[i].offset, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].text;
    if (bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0)
        return holds(start, bytes, ".npy") ? SAY("a NumPy archive") : SAY("a zip archive");
    if (bytes >= 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5)
        return SAY("a Python pickle");
    if (bytes >= 3 && start[0] == 8 && start[1] < 32 && (start[2] == 0x12 || ends(name, ".onnx")))
        return SAY("an ONNX file");
    if (ends(name, ".caffemodel"))
        return SAY("a Caffe model");
    return NULL;
}

bool np_weights_kind(
    const char *name, const uint8_t *start, size_t bytes, char *text, size_t text_bytes)
{
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    const char *dot = strrchr(base, '.');
    const size_t stem = dot && dot > base ? (size_t)(dot - name) : strlen(name);
    const char *kind;

    if (is_torch(name, start, bytes)) {
        snprintf(text, text_bytes,
            "a PyTorch file; this makes a safetensors file of it: " TORCH_LINES, name, (int)stem,
            name);
        return true;
    }
    kind = kind_of(name, start, bytes);
    if (kind)
        snprintf(text, text_bytes, "%s", kind);
    return kind != NULL;
}
