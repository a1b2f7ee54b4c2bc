<?php
// Says of pairs of serialized texts whether PHP reads them as equal. Standard input is a JSON list of {"was", "now", "in"} in base64;
// "in" says where in the second the first is to be found: nowhere else, in the element 1 of an array, or message: the messages of two
// envelopes of Symfony are compared. Prints one of equal, other and unread (PHP itself cannot read the first) for each.

function read(string $text)
{
    return @unserialize(base64_decode($text), ['allowed_classes' => false]);
}

foreach (json_decode(stream_get_contents(STDIN), true, 512, JSON_THROW_ON_ERROR) as $pair) {
    $was = read($pair['was']);
    $now = read($pair['now']);
    if ($was === false) {
        echo "unread\n";
        continue;
    }
    if ($now === false) {
        echo "other\n";
        continue;
    }
    if ($pair['in'] === '1') {
        $now = $now[1];
    }
    if ($pair['in'] === 'message') {
        $key = "\0Symfony\\Component\\Messenger\\Envelope\0message";
        [$was, $now] = [((array) $was)[$key], ((array) $now)[$key]];
    }
    // What is equal to PHP it serializes equally, references and shared objects included.
    echo serialize($was) === serialize($now) ? "equal\n" : "other\n";
}
