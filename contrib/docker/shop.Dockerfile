# The shop of compose.yaml: Laravel's queue and Symfony's transport as Debian packages.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends php-cli php-redis php-illuminate-queue php-illuminate-redis php-illuminate-bus php-symfony-redis-messenger
WORKDIR /shop
COPY laravel.php symfony.php ./
USER nobody
