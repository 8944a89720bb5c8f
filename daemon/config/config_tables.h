/* The option tables of config.c, for printing resolved configs and docs/CONFIG.md. */
#ifndef NP_CONFIG_TABLES_H
#define NP_CONFIG_TABLES_H

#include "loader/base/option.h"

extern const struct np_option np_config_table[]; /* struct np_config */
extern const struct np_option np_train_table[];  /* struct np_train_options */
extern const struct np_option np_checkpoint_table[];

#endif
