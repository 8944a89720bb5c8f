# Reads the output of `protoc --decode=Trace` and prints its contents, a line each:
#   span TRACK NAME COUNT      track TRACK      counter TRACK VALUES MOST
#   batch NUMBER TRACKS        (tracks that have a span of that batch)
#   mark NAME ANNOTATION VALUE (of instants)
#   wrong SENTENCE             what no trace may have; exit 1
# Sequences are followed as Perfetto does: clock, track and names are those of the sequence's last
# packet that cleared its state. mawk's numbers are doubles: nanoseconds since boot fit.
function wrong(why) {
    if (bad++ < 10)
        print "wrong " why " (packet " packets ", sequence " seq ")"
}
function trim(s) { gsub(/^"|"$/, "", s); return s }

/^[ ]*[0-9]+[: ]/ { wrong("a field that the format does not have: " $0) }
/\{$/ { path[++depth] = $1; if (depth == 1) clear_packet(); if ($1 == "debug_annotations") an = av = ""; next }
/^[ ]*\}$/ {
    if (path[depth] == "debug_annotations") annotation[an] = av
    if (path[depth] == "event_names" ) event_name[seq, iid] = name
    if (path[depth] == "debug_annotation_names") annotation_name[seq, iid] = name
    depth--
    if (depth == 0) packet()
    next
}
{
    key = $1; sub(/:$/, "", key)
    value = $0; sub(/^[ ]*[a-z_]+: /, "", value)
    in_ = path[depth]
    if (depth == 1 && key == "timestamp") stamp = value
    else if (key == "trusted_packet_sequence_id") seq = value
    else if (key == "sequence_flags") flags = value
    else if (in_ == "track_event_defaults") default_uuid = value
    else if (key == "timestamp_clock_id") clock = value
    else if (in_ == "clock_snapshot" || in_ == "clocks") clocks = clocks " " key "=" value
    else if (key == "iid") iid = value
    else if (in_ ~ /_names$/ && key == "name") name = trim(value)
    else if (in_ == "debug_annotations" && key == "uint_value") av = value
    else if (in_ == "debug_annotations" && key == "name") an = trim(value)
    else if (in_ == "debug_annotations") an = "#" value
    else if (in_ == "track_event" && key == "type") type = value
    else if (in_ == "track_event" && key == "name_iid") event = "#" value
    else if (in_ == "track_event" && key == "name") event = trim(value)
    else if (in_ == "track_event" && key == "flow_ids") flow = value
    else if (key == "double_counter_value") number = value
    else if (in_ == "track_descriptor" && key == "uuid") uuid = value
    else if (in_ == "track_descriptor" && key == "name") track_name = trim(value)
    else if (in_ == "track_descriptor" && key == "parent_uuid") parent = value
    else if (key == "process_name") { track_name = "process"; process_uuid = 1 }
}
function clear_packet() {
    stamp = seq = flags = default_uuid = clock = type = event = number = uuid = track_name = parent = ""
    flow = process_uuid = ""
    split("", annotation)
}
function packet(    track, i, k, what, role) {
    packets++
    if (seq == "") wrong("a packet of no sequence")
    if (flags == 1) { cleared[seq] = 1; uuid_of[seq] = default_uuid; clock_of[seq] = clock }
    else if (flags == 2 && !(seq in cleared)) wrong("a packet that needs a state which was never set")
    if (uuid != "") {
        if (uuid in named && named[uuid] != track_name) wrong("two names of one track: " named[uuid] " and " track_name)
        if (parent != "" && !(parent in named)) wrong("a track below a missing one")
        named[uuid] = track_name
    }
    if (type == "") return
    if (clock_of[seq] != 3) wrong("an event of another clock")
    if (!(uuid_of[seq] in named)) wrong("an event of no track")
    track = named[uuid_of[seq]]
    if (stamp + 0 < last[seq] + 0) wrong("times go back: " stamp " after " last[seq])
    last[seq] = stamp
    # threads that follow one another share a row: no overlap there either
    if (type == "TYPE_SLICE_BEGIN" || type == "TYPE_SLICE_END") {
        if (stamp + 0 < row_last[track] + 0) wrong("spans of " track " overlap")
        row_last[track] = stamp
    }
    what = event
    if (what ~ /^#/) { what = event_name[seq, substr(what, 2)]; if (what == "") wrong("a missing name") }
    if (type == "TYPE_SLICE_BEGIN") {
        if (open[seq]++) wrong("a span begins within another on " track)
        gsub(/[, ]+/, "_", what)
        spans[track " " what]++
        for (i in annotation) {
            k = i ~ /^#/ ? annotation_name[seq, substr(i, 2)] : i
            if (k == "") wrong("an annotation that has no name")
            role = track ~ /^reader/ ? "reader" : track
            if (k == "batch" && !((annotation[i], role) in seen)) {
                seen[annotation[i], role] = 1
                batch[annotation[i]] = batch[annotation[i]] "," role
            }
            if (k == "row" && what == "augment") row_sum[annotation["#1"]]++
        }
    } else if (type == "TYPE_SLICE_END") {
        if (--open[seq] != 0) wrong("a span ends that has not begun on " track)
    } else if (type == "TYPE_COUNTER") {
        counts[track]++
        if (number + 0 > most[track] + 0) most[track] = number
    } else {
        for (i in annotation) print "mark " what ": " i " " annotation[i]
    }
}
END {
    if (depth != 0) wrong("the file ends within a packet")
    for (i in open) if (open[i]) { seq = i; wrong("a span does not end") }
    for (i in named) print "track " named[i]
    for (i in spans) print "span " i " " spans[i]
    for (i in counts) print "counter " i " " counts[i] " " most[i]
    for (i in batch) print "batch " i " " batch[i] " rows=" row_sum[i]
    print "clocks" clocks
    print "packets " packets
    exit bad > 0
}
