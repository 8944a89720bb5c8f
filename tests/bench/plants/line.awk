# A case's line for people.
{
    for (i = 1; i <= NF; i++) { at = index($i, "="); v[substr($i, 1, at - 1)] = substr($i, at + 1) }
    printf "%-30s clean %8.0f planted %8.0f img/s: %.2fx; said: %s %s, %s -> %s; predicted %s; next %s; others %s cores\n", \
        v["case"], v["clean"], v["slow"], v["clean"] / v["slow"], v["verdict"], v["limiter"], v["setting"], v["value"], \
        v["predicted_images_per_second"], v["next_limiter"], v["others"]
}
