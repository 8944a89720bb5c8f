/* The keys that sign requests, the region and the endpoint, from where the AWS tools have them:
 * the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), a web identity
 * (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), the files ~/.aws/credentials and ~/.aws/config
 * (AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE), and the role of a container or an
 * instance (role.h). Keys of a role are asked for again before they expire, and files are read again
 * after a refusal. Any thread; one at a time asks. */
#ifndef NP_CREDENTIALS_H
#define NP_CREDENTIALS_H

#include "loader/remote/aws_profile.h"

/* The current keys. renew: they were refused, so asks for new ones (at most once in 2 s). May block on
 * the network. Without keys anywhere ret_keys->id is empty: anonymous. Errors name the place and
 * what to do. */
int np_credentials_get(bool renew, struct np_keys *ret_keys, struct np_err *err);
/* AWS_REGION, AWS_DEFAULT_REGION, the profile's region, or "us-east-1". */
void np_credentials_region(char *region, size_t region_bytes);
/* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or the profile's endpoint_url; false: AWS itself. */
bool np_credentials_endpoint(char *url, size_t url_bytes);

#endif
