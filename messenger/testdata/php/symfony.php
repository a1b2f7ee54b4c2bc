<?php
// What the drivers here share: Debian's Symfony 5.4 (php-symfony-messenger,
// php-symfony-redis-messenger, php-symfony-doctrine-messenger, php-doctrine-dbal).

namespace App\Message {
    class Charge
    {
        public $orderId;
        protected $note = "it's \"ok\" \\ / zażółć";

        public function __construct(string $orderId)
        {
            $this->orderId = $orderId;
        }
    }

    class Pair
    {
        public $a;
        public $b;
        public $c;

        public function __construct()
        {
            $this->a = $this->b = new Charge('shared');
            $five = 5;
            $this->c = [&$five, &$five];
        }
    }
}

namespace {
    error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
    set_error_handler(function ($type, $text) { return (bool) ($type & (E_DEPRECATED | E_USER_DEPRECATED)); });
    if (!extension_loaded('redis')) {
        fwrite(STDERR, "no extension redis\n");
        exit(77);
    }
    foreach (['Messenger', 'Messenger/Bridge/Redis', 'Messenger/Bridge/Doctrine', 'Console'] as $part) {
        needed("Symfony/Component/$part/autoload.php");
    }

    // needed loads a Debian package's file, or ends the driver with status 77.
    function needed(string $file)
    {
        if (!is_file("/usr/share/php/$file")) {
            fwrite(STDERR, "no /usr/share/php/$file\n");
            exit(77);
        }
        require_once "/usr/share/php/$file";
    }

    function redis(string $dsn): Symfony\Component\Messenger\Bridge\Redis\Transport\Connection
    {
        return Symfony\Component\Messenger\Bridge\Redis\Transport\Connection::fromDsn($dsn, []);
    }

    // told is an envelope as the Go tests read it.
    function told(Symfony\Component\Messenger\Envelope $envelope): string
    {
        $stamps = array_map('count', $envelope->all());
        $error = $envelope->last(Symfony\Component\Messenger\Stamp\ErrorDetailsStamp::class);
        $sent = $envelope->last(Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp::class);
        $again = $envelope->last(Symfony\Component\Messenger\Stamp\RedeliveryStamp::class);
        $m = $envelope->getMessage();
        return json_encode([
            'class' => get_class($m),
            'orderId' => $m->orderId ?? null,
            'same' => $m instanceof App\Message\Pair && $m->a === $m->b && is_string($m->a->orderId) && (function () use ($m) {
                $m->c[0] = 'changed';

                return $m->c[1] === 'changed';
            })(),
            'stamps' => $stamps,
            'error' => $error ? $error->getExceptionMessage() : null,
            'from' => $sent ? $sent->getOriginalReceiverName() : null,
            'at' => $again ? $again->getRedeliveredAt()->format(DATE_ATOM) : null,
        ], JSON_THROW_ON_ERROR)."\n";
    }
}
